// All other divergences: p = w s(t) with t = origin + x, x = x_top + β d, and two unknowns, β = 1/α
// and the tilt x_top of the largest loss, for two equations, E s = 1 and E φ(s) = ρ.
//
// Newton's method on both at once finds them in a few sweeps. Where φ has straight pieces, or
// Newton's method does not settle, bisection in β around bisection in x does.
#pragma once

#include <vector>

#include "divergence.hpp"
#include "search.hpp"

namespace drolearn::TARGET {

// -- sums and weights of one chunk -----------------------------------------------------------

// E s, E s d, E φ(s), and E s' yʲ for j = 0, 1, 2. y is x for powers, which have no digits to lose
// where s' is large, and d for others. Next to the cost of s, writing it down is free: the last of
// these sweeps leaves the weights.
template <class Phi, class Weights>
PER_CHUNK CurveSums curve_sums(Phi phi, Chunk<Weights> chunk, const Ball& ball,
                               const Search& search, double* out) {
    const Frame frame = ball.frame;
    const double x_top = search.curve.x, beta = search.curve.beta, unit = frame.unit;
    const bool power = ball.divergence.origin != 0.0;
    const double* z = chunk.z;
    const auto b = chunk.b;
    const size_t n = chunk.n;
    double total = 0, first = 0, divergence = 0, rise0 = 0, rise1 = 0, rise2 = 0;
#pragma omp simd reduction(+ : total, first, divergence, rise0, rise1, rise2)
    for (size_t i = 0; i < n; ++i) {
        const double d = frame.depth_of<Weights>(z[i]);
        const double x = x_top + beta * d;
        const double y = select(power, x, d);
        const CurvePoint at = phi.at(x);
        const double s = b[i] * at.s, ds = b[i] * at.ds;
        out[i] = s * unit;
        total += s;
        first += s * d;
        divergence += b[i] * at.phi;
        rise0 += ds;
        rise1 += ds * y;
        rise2 += ds * y * y;
    }
    return {total, first, divergence, rise0, rise1, rise2};
}

// Writes p = w Σⱼ cⱼ s(xⱼ + βⱼ d) / norm over the points j of a mixture.
template <class Phi, class Weights>
PER_CHUNK FillSums fill_mixture(Phi phi, Chunk<Weights> chunk, const Ball& ball,
                                const Search& search, double* out) {
    const double* z = chunk.z;
    const auto b = chunk.b;
    const size_t n = chunk.n;
    const Frame frame = ball.frame;
    FillSums sums;
    for (size_t i = 0; i < n; ++i) {
        const double w = frame.unit * b[i];
        const double d = frame.depth_of<Weights>(z[i]);
        double s = 0.0;
        for (const MixturePoint& point : search.curve.mixture) {
            if (point.share > 0.0) s += point.share * phi.at(point.x + point.beta * d).s;
        }
        s /= search.norm;
        const double p = w * s;
        out[i] = p;
        sums.mass += p;
        sums.first += p * d;
        if (w > 0.0) sums.divergence += w * (s > 0.0 ? phi.phi(s) : ball.divergence.phi_zero);
    }
    return sums;
}

// -- the user's own φ ------------------------------------------------------------------------

// Chunks that a user's function is called on at once: calls from C++ into Python cost some
// microseconds each.
inline constexpr size_t custom_chunks = 16;

// The user's φ on arrays of numbers; the memory it needs is used again and again.
class CustomCurve {
  public:
    explicit CustomCurve(const Divergence& divergence) : divergence_(divergence) {}

    // s(origin + x), cut to [0, cap]. The largest loss has s ≤ 1/peak = cap, and s grows with the
    // loss: the cap excludes nothing, and gives φ with a finite slope at infinity a finite s.
    bool inverse(const std::vector<double>& x, double cap, std::vector<double>& s) {
        tilt_.resize(x.size());
        s.resize(x.size());
        const double shift = divergence_.slope_one + divergence_.origin;
        for (size_t i = 0; i < x.size(); ++i) tilt_[i] = shift + x[i];
        if (!divergence_.inverse(tilt_.data(), s.data(), s.size())) return false;
        for (double& each : s) each = each >= cap ? cap : each > 0.0 ? each : 0.0;
        return true;
    }

    // φ(s) with φ'(1) taken for zero.
    bool phi(const std::vector<double>& s, std::vector<double>& value) {
        safe_.resize(s.size());
        value.resize(s.size());
        // φ may not be defined at zero, where its limit is known.
        for (size_t i = 0; i < s.size(); ++i) safe_[i] = s[i] > 0.0 ? s[i] : 1.0;
        if (!divergence_.phi(safe_.data(), value.data(), value.size())) return false;
        for (size_t i = 0; i < s.size(); ++i) {
            const double level = value[i] - divergence_.slope_one * (s[i] - 1.0);
            value[i] = s[i] > 0.0 ? level : divergence_.phi_zero;
        }
        return true;
    }

    // `curve_sums` for each of some chunks.
    bool sums(const Ball& ball, const Losses& losses, const Search& search, double* out,
              Sums* parts) {
        const Frame& frame = ball.frame;
        const double cap = 1.0 / frame.peak;
        const bool power = divergence_.origin != 0.0;
        x_.resize(losses.n);
        for (size_t i = 0; i < losses.n; ++i) {
            x_[i] = search.curve.x + search.curve.beta * frame.depth(losses.z[i]);
        }
        if (!inverse(x_, cap, s_) || !phi(s_, value_)) return false;
        // A one-sided difference is enough for Newton's method: the brackets do the rest. Where s
        // jumps, Newton's method has no use for it.
        ahead_ = s_;
        if (!divergence_.straight) {
            next_.resize(losses.n);
            for (size_t i = 0; i < losses.n; ++i) next_[i] = x_[i] + rise_step(x_[i]);
            if (!inverse(next_, cap, ahead_)) return false;
        }
        for (size_t k = 0; k < chunk_count(losses.n); ++k) {
            CurveSums sums;
            const size_t stop = std::min((k + 1) * chunk_size, losses.n);
            for (size_t i = k * chunk_size; i < stop; ++i) {
                const double d = frame.depth(losses.z[i]), y = power ? x_[i] : d;
                const double w = losses.b ? losses.b[i] : 1.0, s = w * s_[i];
                const double ds = w * (ahead_[i] - s_[i]) / rise_step(x_[i]);
                out[i] = s * frame.unit;
                sums.join({s, s * d, w * value_[i], ds, ds * y, ds * y * y});
            }
            parts[k].curve = sums;
        }
        return true;
    }

    // `fill_mixture` for each of some chunks.
    bool fill(const Ball& ball, const Losses& losses, const Search& search, double* out,
              Sums* parts) {
        const Frame& frame = ball.frame;
        std::vector<double>& s = ahead_;
        s.assign(losses.n, 0.0);
        x_.resize(losses.n);
        for (const MixturePoint& point : search.curve.mixture) {
            if (!(point.share > 0.0)) continue;
            for (size_t i = 0; i < losses.n; ++i) {
                x_[i] = point.x + point.beta * frame.depth(losses.z[i]);
            }
            if (!inverse(x_, 1.0 / frame.peak, s_)) return false;
            for (size_t i = 0; i < losses.n; ++i) s[i] += point.share * s_[i];
        }
        for (double& each : s) each /= search.norm;
        if (!phi(s, value_)) return false;
        for (size_t k = 0; k < chunk_count(losses.n); ++k) {
            FillSums sums;
            const size_t stop = std::min((k + 1) * chunk_size, losses.n);
            for (size_t i = k * chunk_size; i < stop; ++i) {
                const double w = losses.b ? frame.unit * losses.b[i] : frame.unit;
                const double p = w * s[i];
                out[i] = p;
                const double divergence = w > 0.0 ? w * value_[i] : 0.0;
                sums.join({p, p * frame.depth(losses.z[i]), divergence, 0.0});
            }
            parts[k].fill = sums;
        }
        return true;
    }

  private:
    static double rise_step(double x) { return 1e-7 * (1.0 + std::fabs(x)); }

    const Divergence& divergence_;
    std::vector<double> x_, next_, s_, ahead_, value_, tilt_, safe_;
};

// -- from sums to the next guess ---------------------------------------------------------------

// φ'(s) − origin for the divergence of a ball.
inline double tilt_of(const Divergence& divergence, double s) {
    return visit(divergence, [s](const auto& phi) {
        if constexpr (requires { phi.tilt(s); }) {
            return phi.tilt(s);
        } else {
            return 0.0;  // not a curve
        }
    });
}

// The largest loss has 1 ≤ s ≤ 1/peak, which brackets its tilt.
inline void open_tilt(const Ball& ball, CurveState& state) {
    const double high = tilt_of(ball.divergence, 1.0 / ball.frame.peak);
    state.x_low = -ball.divergence.origin;
    state.x_high = high + 1e-12 * std::fabs(high);
}

// x if it lies in its bracket, else the bracket's middle.
inline void set_tilt(CurveState& state, double x) {
    if (!(state.x_low < x && x < state.x_high)) {
        x = 0.5 * (state.x_low + state.x_high);
        // Next to the pole of s at zero, on a log scale.
        if (state.x_high < 0.0) x = -std::sqrt(state.x_low * state.x_high);
    }
    state.x = x;
}

// Starts at λ and β, or near it if λ lies beyond the pole of s.
inline void enter_curve(const Ball& ball, CurveState& state, double lam) {
    const double origin = ball.divergence.origin;
    if (origin == 0.0) {
        open_tilt(ball, state);
        set_tilt(state, -lam * state.beta);
        return;
    }
    const double sign = origin > 0.0 ? -1.0 : 1.0;
    double c = sign * (-lam - origin / state.beta);
    // The largest loss then has about a quarter of the mass.
    if (!(c > 0.0)) c = 4.0 * ball.frame.peak / state.beta;
    state.x = sign * state.beta * c;
}

inline void start_bisection(const Ball& ball, CurveState& state) {
    open_tilt(ball, state);
    state.mode = CurveMode::low_end;
    state.bracket = {};
    state.x = state.x_low;
    if (!(0.0 < state.beta && state.beta < infinity)) state.beta = 1.0;
}

// The first point of a curve, from the moments of the losses.
inline void advance_curve_moments(const Ball& ball, Search& search) {
    const Moments& sums = search.sums.moments;
    const double mean = search.shift + sums.first / sums.mass;
    search.curve.beta = beta_of_moments(ball, search);
    if (search.phase == Phase::moments) return;
    if (ball.divergence.straight) {
        start_bisection(ball, search.curve);
    } else {
        enter_curve(ball, search.curve, mean);
    }
}

// The dual value at the multipliers of (β, x): an upper bound on every feasible Σ p d, given that s
// minimises φ(s) − t s.
inline double lagrangian(const Ball& ball, double beta, double x, const CurveEnd& sums) {
    const double alpha = 1.0 / beta, lam = -(ball.divergence.origin + x) / beta;
    return sums.first + lam * (1.0 - sums.total) + alpha * (ball.rho - sums.divergence);
}

// Newton's step in x towards E s = 1, on a log scale: s grows like an exponential.
inline double tilt_step(double total, double slope) {
    if (!(slope > 0.0 && slope < infinity && total > 0.0)) return std::nan("");
    return -std::log(total) * total / slope;
}

// Newton's step in a logarithmic variable in which D has this slope.
inline double outer_step(const Ball& ball, double divergence, double slope) {
    const double ceiling = ball.frame.ceiling;
    if (slope == 0.0 || !(0.0 < divergence && divergence < ceiling)) return std::nan("");
    const Logit logit(divergence, ball.rho, ceiling);
    return -logit.h / (slope * logit.first);
}

// Newton's method on (log β, x) for E s = 1 and E φ(s) = ρ at once.
//
// Differentiating along E s = 1 gives dD/d log β = β² (E s'd² − (E s'd)²/E s').
inline void advance_newton(const Ball& ball, Search& search) {
    CurveState& state = search.curve;
    const CurveSums& sums = search.sums.curve;
    const double beta = state.beta, x = state.x, unit = ball.frame.unit, rho = ball.rho;
    const double total = sums.total * unit, divergence = sums.divergence * unit;
    const double a0 = sums.rise0 * unit, a1 = sums.rise1 * unit, a2 = sums.rise2 * unit;
    if (std::fabs(1.0 - total) <= 2e-13 && close_enough(divergence, rho)) {
        search.phase = Phase::done;
        return;
    }
    if (search.rounds > 30) {
        start_bisection(ball, state);
        return;
    }
    const double to_one = tilt_step(total, a0);
    const double at_one = divergence + (x * a0 + beta * a1) * to_one;
    if (!(std::fabs(1.0 - total) < 0.2 && 0.0 < at_one && at_one < infinity)) {
        (total < 1.0 ? state.x_low : state.x_high) = x;  // mend E s first, at this β
        set_tilt(state, x + to_one);
        return;
    }
    if (std::fabs(at_one - divergence) <= 0.1 * std::fabs(at_one - rho)) {
        (at_one < rho ? state.bracket.low : state.bracket.high) = beta;
    }
    const double step = outer_step(ball, at_one, beta * beta * (a2 - a1 * a1 / a0));
    double next = std::min(next_value(search, state.bracket, beta, step), huge);
    open_tilt(ball, state);
    double move = to_one - (next - beta) * a1 / a0;
    const double bound = 0.75 * ((move > 0.0 ? state.x_high : state.x_low) - x);
    if (std::fabs(move) > std::fabs(bound)) {  // stay in the bracket: a shorter step, in β too
        next = beta + (next - beta) * (bound / move);
        move = bound;
    }
    state.beta = next;
    state.x = x + move;
}

// Weights of the feasible and the infeasible corner such that D ≤ ρ; or of one of them.
inline void mix(const Ball& ball, Search& search, bool infeasible, bool both) {
    CurveState& state = search.curve;
    const CurveCorner& own = infeasible ? state.high_corner : state.low_corner;
    double share = infeasible ? 1.0 : 0.0;
    state.dual = own.dual;
    if (both) {
        const double below = state.low_corner.divergence, above = state.high_corner.divergence;
        share = (ball.rho - below) / (above - below);
        state.dual = std::min(state.low_corner.dual, state.high_corner.dual);
    }
    state.beta = own.beta;
    state.x = own.x_low;
    for (int side = 0; side < 2; ++side) {
        const CurveCorner& corner = side == 0 ? state.low_corner : state.high_corner;
        const double part = side == 0 ? 1.0 - share : share;
        state.mixture[2 * side] = {part * (1.0 - corner.share), corner.beta, corner.x_low};
        state.mixture[2 * side + 1] = {part * corner.share, corner.beta, corner.x_high};
    }
    state.mixed = true;
    search.phase = Phase::fill;
}

// Bisection in β around bisection in x, for φ where Newton's method does not settle.
//
// Where φ has straight pieces, s jumps: E s = 1 and E φ(s) = ρ then hold only for a mixture of the
// weights on both sides of the jump. D is convex, so mixing by linear interpolation stays inside
// the ball, and on a straight piece it is exact.
inline void advance_bisection(const Ball& ball, Search& search) {
    CurveState& state = search.curve;
    const CurveSums& sums = search.sums.curve;
    const double beta = state.beta, x = state.x, unit = ball.frame.unit, rho = ball.rho;
    const CurveEnd here{sums.total * unit, sums.first * unit, sums.divergence * unit};
    bool upper = here.total >= 1.0;
    if (state.mode == CurveMode::low_end) upper = false;
    if (state.mode == CurveMode::high_end) upper = true;
    (upper ? state.x_high : state.x_low) = x;
    (upper ? state.high_end : state.low_end) = here;
    if (state.mode == CurveMode::low_end) {  // both ends first
        state.mode = CurveMode::high_end;
        state.x = state.x_high;
        return;
    }
    double x_low = state.x_low, x_high = state.x_high;
    const bool converged = std::fabs(here.total - 1.0) <= 1e-14;
    const double size = std::max(std::fabs(x_low), std::fabs(x_high));
    if (!converged && x_high - x_low > 2.0 * epsilon * size) {
        const double newton = x + tilt_step(here.total, sums.rise0 * unit);
        const double residual = std::fabs(here.total - 1.0);
        const bool good = state.mode == CurveMode::bisection && residual < 0.25 * state.residual;
        state.residual = residual;
        state.mode = CurveMode::bisection;
        const bool inside = x_low < newton && newton < x_high;
        state.x = good && inside ? newton : 0.5 * (x_low + x_high);
        return;
    }
    // E s = 1 at this β, by a mixture of both ends if need be.
    CurveEnd low = state.low_end, high = state.high_end;
    if (converged) {
        low = high = here;
        x_low = x_high = x;
    }
    double share = 0.0;
    if (high.total > low.total) {
        share = std::clamp((1.0 - low.total) / (high.total - low.total), 0.0, 1.0);
    }
    const double divergence = (1.0 - share) * low.divergence + share * high.divergence;
    const double dual =
        std::min(lagrangian(ball, beta, x_low, low), lagrangian(ball, beta, x_high, high));
    const bool infeasible = !(divergence <= rho);
    (infeasible ? state.high_corner : state.low_corner) = {beta,  x_low,      x_high,
                                                           share, divergence, dual};
    (infeasible ? state.bracket.high : state.bracket.low) = beta;
    const bool closed = state.bracket.closed() && state.bracket.high - state.bracket.low <=
                                                      2.0 * epsilon * state.bracket.high;
    if (close_enough(divergence, rho) || closed || (beta >= huge && !infeasible)) {
        mix(ball, search, infeasible, closed);
        return;
    }
    state.beta = next_value(search, state.bracket, beta, std::nan(""));
    open_tilt(ball, state);
    state.mode = CurveMode::low_end;
    state.x = state.x_low;
}

// Newton's method on (log c, log β), where x = β d ± β c.
//
// For these φ, s is a power of x, or close to one: it has a pole or a zero at a distance c from the
// largest loss. Scaling β at fixed c then scales s, and E s = 1 is one step away; what remains is
// one equation for c, from ∞ (ρ = 0) down to 0 (the largest loss).
inline void advance_power(const Ball& ball, Search& search) {
    CurveState& state = search.curve;
    const CurveSums& sums = search.sums.curve;
    const double beta = state.beta, x = state.x, unit = ball.frame.unit, rho = ball.rho;
    const CurveEnd here{sums.total * unit, sums.first * unit, sums.divergence * unit};
    const double a0 = sums.rise0 * unit, a1 = sums.rise1 * unit, a2 = sums.rise2 * unit;
    const double c = std::fabs(x) / beta;
    const double off = std::fabs(1.0 - here.total);
    if (off <= 2e-13) {
        const bool at_end = c <= 1.0 / huge && here.divergence < rho;
        if (at_end || close_enough(here.divergence, rho)) {
            search.phase = Phase::done;
            return;
        }
    }
    if (search.rounds > 100) {
        start_bisection(ball, state);
        return;
    }
    // In log β, where x scales, E s and D have slopes E s'x and E t s'x.
    const double to_one = std::clamp(-std::log(here.total) * here.total / a1, -5.0, 5.0);
    const double at_one = here.divergence + (ball.divergence.origin * a1 + a2) * to_one;
    if (!(off < 0.2 && 0.0 < at_one && at_one < infinity)) {  // mend E s first, at this c
        state.beta = std::min(beta * std::exp(to_one), huge);
        state.x = std::copysign(c * state.beta, x);
        return;
    }
    if (off <= 1e-9 && std::fabs(at_one - rho) <= 1e-12 * rho) {
        // Losses with too few digits between them for E s = 1: divide by E s instead.
        state.mixture[0] = {1.0, beta, x};
        search.norm = here.total;
        state.dual = lagrangian(ball, beta, x, here);
        state.mixed = true;
        search.phase = Phase::fill;
        return;
    }
    if (off <= 1e-6 && off * off <= 0.01 * std::fabs(at_one - rho)) {  // the sign is certain
        const bool infeasible = !(at_one < rho);
        (infeasible ? state.bracket.low : state.bracket.high) = c;
        (infeasible ? state.high_corner : state.low_corner) = {
            beta, x, x, 0.0, at_one, lagrangian(ball, beta, x, here)};
        const double width = state.bracket.high - state.bracket.low;
        if (width < 0.0) {  // rounding can put them the wrong way round
            state.bracket = {};
        } else if (0.0 < width && width <= 4.0 * epsilon * state.bracket.low) {
            // Steep powers: one more bit of c moves D across ρ. A mixture lies in between.
            mix(ball, search, infeasible, true);
            return;
        }
    }
    const double follow = -x * a0 / a1;  // d log β / d log c along E s = 1
    const double step = outer_step(ball, at_one, x * (a1 - a2 * a0 / a1));
    const double next = std::max(next_value(search, state.bracket, c, step), 1.0 / huge);
    state.beta = std::min(beta * std::exp(to_one + follow * std::log(next / c)), huge);
    state.x = std::copysign(next * state.beta, x);
}

inline void advance_curve(const Ball& ball, Search& search) {
    if (search.curve.mode != CurveMode::newton) {
        advance_bisection(ball, search);
    } else if (ball.divergence.origin != 0.0) {
        advance_power(ball, search);
    } else {
        advance_newton(ball, search);
    }
}

}  // namespace drolearn::TARGET
