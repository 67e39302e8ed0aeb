// All other divergences: p = w s(t) with t = origin + x and x = x_top + β d.
//
// The two unknowns β = 1/α and x_top, the x of the largest loss, solve E s = 1 and E φ(s) = ρ.
// Newton's method on both equations at once takes a few sweeps. If φ has linear pieces, or Newton's
// method does not converge, nested bisection in β and x is used.
#pragma once

#include <utility>

#include "divergence.hpp"
#include "search.hpp"

namespace drolearn::TARGET {

// -- sums and weights of one chunk -----------------------------------------------------------

// Losses per inner loop: their numbers stay in the first-level cache.
inline constexpr size_t curve_block = 256;

// E s, E s d, E φ(s), and E s' yʲ for j = 0, 1, 2, with y = x for powers (`advance_power`), where
// it keeps its digits when s' is large, and y = d for others. Also writes the weights, which costs
// little compared with computing s; those of the last sweep are the result.
//
// The logarithm and the exponential of a loss wait for each other. In separate loops, the processor
// computes those of several losses at once.
template <class Phi, class Weights>
PER_CHUNK CurveSums curve_sums(Phi phi, Chunk<Weights> chunk, const Ball& ball,
                               const Search& search, double* out) {
    const Frame frame = ball.frame;
    const double x_top = search.curve.x, beta = search.curve.beta, unit = frame.unit;
    const bool power = ball.divergence.origin != 0.0;
    double first_half[curve_block];
    CurveSums sums;
    for (size_t start = 0; start < chunk.n; start += curve_block) {
        const double* z = chunk.z + start;
        const auto b = chunk.b + start;
        double* p = out + start;
        const size_t n = std::min(curve_block, chunk.n - start);
#pragma omp simd
        for (size_t i = 0; i < n; ++i) {
            first_half[i] = phi.half(x_top + beta * frame.depth_of<Weights>(z[i]));
        }
        double total = 0, first = 0, divergence = 0, rise0 = 0, rise1 = 0, rise2 = 0;
#pragma omp simd reduction(+ : total, first, divergence, rise0, rise1, rise2)
        for (size_t i = 0; i < n; ++i) {
            const double d = frame.depth_of<Weights>(z[i]);
            const double x = x_top + beta * d;
            const double y = select(power, x, d);
            const CurvePoint at = phi.at(x, first_half[i]);
            const double s = b[i] * at.s, ds = b[i] * at.ds;
            p[i] = s * unit;
            total += s;
            first += s * d;
            divergence += b[i] * at.phi;
            rise0 += ds;
            rise1 += ds * y;
            rise2 += ds * y * y;
        }
        sums.join({total, first, divergence, rise0, rise1, rise2});
    }
    return sums;
}

// Writes p = w Σⱼ cⱼ s(xⱼ + βⱼ d) / norm over the points j of a mixture.
template <class Phi, class Weights>
PER_CHUNK WriteSums write_mixture(Phi phi, Chunk<Weights> chunk, const Ball& ball,
                                  const Search& search, double* out) {
    const double* z = chunk.z;
    const auto b = chunk.b;
    const size_t n = chunk.n;
    const Frame frame = ball.frame;
    WriteSums sums;
    for (size_t i = 0; i < n; ++i) {
        const double w = frame.unit * b[i];
        const double d = frame.depth_of<Weights>(z[i]);
        double s = 0.0;
        for (const MixturePoint& point : search.curve.mixture) {
            if (!(point.share > 0.0)) continue;
            const double x = point.x + point.beta * d;
            s += point.share * phi.at(x, phi.half(x)).s;
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

// -- from the sums to the next point ---------------------------------------------------------

// x = φ'(s) − origin.
inline double slope_of(const Divergence& divergence, double s) {
    return visit(divergence, [s](const auto& phi) {
        if constexpr (requires { phi.slope(s); }) {
            return phi.slope(s);
        } else {
            return 0.0;  // not a curve
        }
    });
}

// Resets the bracket of x: the largest loss has 1 ≤ s ≤ 1/peak.
inline void reset_x_bracket(const Ball& ball, CurveState& state) {
    const double high = slope_of(ball.divergence, 1.0 / ball.frame.peak);
    state.x_low = -ball.divergence.origin;
    state.x_high = high + 1e-12 * std::fabs(high);
}

// Sets x, or the middle of its bracket if x lies outside.
inline void set_x(CurveState& state, double x) {
    if (!(state.x_low < x && x < state.x_high)) {
        x = 0.5 * (state.x_low + state.x_high);
        // s has a pole at x = 0: take the geometric mean there.
        if (state.x_high < 0.0) x = -std::sqrt(state.x_low * state.x_high);
    }
    state.x = x;
}

// Starts Newton's method at β and λ, or close to it if s is not defined there.
inline void start_newton(const Ball& ball, CurveState& state, double lam) {
    const double origin = ball.divergence.origin;
    if (origin == 0.0) {
        reset_x_bracket(ball, state);
        set_x(state, -lam * state.beta);
        return;
    }
    const double sign = origin > 0.0 ? -1.0 : 1.0;
    double c = sign * (-lam - origin / state.beta);
    // Not defined: choose c such that the largest loss gets about a quarter of the mass.
    const double quarter = slope_of(ball.divergence, std::max(0.25 / ball.frame.peak, 1.0));
    if (!(c > 0.0)) c = std::max(std::fabs(quarter), 1.0 / huge) / state.beta;
    state.x = sign * state.beta * c;
}

inline void start_bisection(const Ball& ball, CurveState& state) {
    reset_x_bracket(ball, state);
    state.mode = CurveMode::low_end;
    state.bracket = {};
    state.x = state.x_low;
    if (!(0.0 < state.beta && state.beta < infinity)) state.beta = 1.0;
}

// Starts from the moments of the losses.
inline void advance_curve_moments(const Ball& ball, Search& search) {
    const Moments& sums = search.sums.moments;
    const double mean = search.shift + sums.first / sums.mass;
    search.curve.beta = beta_of_moments(ball, search);
    if (search.phase == Phase::moments) return;
    if (ball.divergence.has_linear_pieces) {
        start_bisection(ball, search.curve);
    } else {
        start_newton(ball, search.curve, mean);
    }
}

// The dual value at the multipliers of (β, x). It bounds Σ p d from above over the ball, provided
// that s minimises φ(s) − t s.
inline double lagrangian(const Ball& ball, double beta, double x, const CurveEnd& sums) {
    const double alpha = 1.0 / beta, lam = -(ball.divergence.origin + x) / beta;
    return sums.first + lam * (1.0 - sums.total) + alpha * (ball.rho - sums.divergence);
}

// Newton's step in x for log E s = 0. The logarithm helps because s grows exponentially.
inline double x_step(double total, double slope) {
    if (!(slope > 0.0 && slope < infinity && total > 0.0)) return std::nan("");
    return -std::log(total) * total / slope;
}

// Newton's step for D = ρ in a logarithmic variable; `slope` is dD by that variable.
inline double divergence_step(const Ball& ball, double divergence, double slope) {
    const double max_divergence = ball.frame.max_divergence;
    if (slope == 0.0 || !(0.0 < divergence && divergence < max_divergence)) return std::nan("");
    const Logit logit(divergence, ball.rho, max_divergence);
    return -logit.h / (slope * logit.first);
}

// One step of Newton's method on (log β, x) for E s = 1 and E φ(s) = ρ.
//
// Along E s = 1, dD/d log β = β² (E s'd² − (E s'd)²/E s').
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
    const double to_one = x_step(total, a0);
    const double at_one = divergence + (x * a0 + beta * a1) * to_one;  // D after this step in x
    if (!(std::fabs(1.0 - total) < 0.2 && 0.0 < at_one && at_one < infinity)) {
        (total < 1.0 ? state.x_low : state.x_high) = x;  // first solve E s = 1 at this β
        set_x(state, x + to_one);
        return;
    }
    if (std::fabs(at_one - divergence) <= 0.1 * std::fabs(at_one - rho)) {
        (at_one < rho ? state.bracket.low : state.bracket.high) = beta;
    }
    const double step = divergence_step(ball, at_one, beta * beta * (a2 - a1 * a1 / a0));
    double next = std::min(next_value(search, state.bracket, beta, step), huge);
    reset_x_bracket(ball, state);
    double move = to_one - (next - beta) * a1 / a0;
    const double bound = 0.75 * ((move > 0.0 ? state.x_high : state.x_low) - x);
    if (std::fabs(move) > std::fabs(bound)) {  // x would leave its bracket: shorten both steps
        next = beta + (next - beta) * (bound / move);
        move = bound;
    }
    state.beta = next;
    state.x = x + move;
}

// Sets the mixture of the feasible and the infeasible point.
inline void set_mixture(CurveState& state, double share) {
    state.share = share;
    for (int side = 0; side < 2; ++side) {
        const BalancedPoint& point = side == 0 ? state.feasible : state.infeasible;
        const double part = (side == 0 ? 1.0 - share : share) / point.total;
        state.mixture[2 * side] = {part * (1.0 - point.share), point.beta, point.x_low};
        state.mixture[2 * side + 1] = {part * point.share, point.beta, point.x_high};
    }
}

// Ends the search with a mixture of the feasible and the infeasible point such that D ≤ ρ, or
// with one of the two points.
inline void mix(const Ball& ball, Search& search, bool infeasible, bool both) {
    CurveState& state = search.curve;
    const BalancedPoint& current = infeasible ? state.infeasible : state.feasible;
    double share = infeasible ? 1.0 : 0.0;
    state.dual = current.dual;
    state.below = state.above = {share, current.divergence};
    if (both) {
        state.below = {0.0, state.feasible.divergence};
        state.above = {1.0, state.infeasible.divergence};
        share =
            (ball.rho - state.below.divergence) / (state.above.divergence - state.below.divergence);
        state.dual = std::min(state.feasible.dual, state.infeasible.dual);
    }
    state.beta = current.beta;
    state.x = current.x_low;
    state.corrections = 0;
    set_mixture(state, share);
    state.mixed = true;
    search.phase = Phase::write;
}

// D is convex in the share of the infeasible point, so linear interpolation leads to D ≤ ρ. For
// large powers, D is almost constant below the solution and steep above: every other step halves
// the bracket. False if D = ρ, or if the bracket is as small as it can be.
inline bool correct_share(const Ball& ball, Search& search) {
    CurveState& state = search.curve;
    const double divergence = search.sums.write.divergence;
    if (!state.mixed || close_enough(divergence, ball.rho)) return false;
    if (!(state.below.share < state.share && state.share < state.above.share)) return false;
    (divergence < ball.rho ? state.below : state.above) = {state.share, divergence};
    const ShareEnd below = state.below, above = state.above;
    const double width = above.share - below.share;
    double next = below.share + 0.5 * width;
    if (state.corrections++ % 2 == 0) {
        const double part = (ball.rho - below.divergence) / (above.divergence - below.divergence);
        next = below.share + part * width;
    }
    const bool closed = !(below.share < next && next < above.share);
    if (closed && divergence < ball.rho) return false;
    set_mixture(state, closed ? below.share : next);
    search.phase = Phase::write;
    return true;
}

// One step of nested bisection: in β, and for each β in x.
//
// If φ has linear pieces, s is discontinuous in x, and E s = 1 and E φ(s) = ρ may hold only for a
// mixture of the weights on both sides of the jump. As D is convex, linear interpolation stays in
// the ball; on a linear piece it is exact.
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
    if (state.mode == CurveMode::low_end) {  // the high end is next
        state.mode = CurveMode::high_end;
        state.x = state.x_high;
        return;
    }
    double x_low = state.x_low, x_high = state.x_high;
    const bool converged = std::fabs(here.total - 1.0) <= 1e-14;
    const double size = std::max(std::fabs(x_low), std::fabs(x_high));
    if (!converged && x_high - x_low > 2.0 * epsilon * size) {
        const double newton = x + x_step(here.total, sums.rise0 * unit);
        const double residual = std::fabs(here.total - 1.0);
        const bool good = state.mode == CurveMode::bisection && residual < 0.25 * state.residual;
        state.residual = residual;
        state.mode = CurveMode::bisection;
        const bool inside = x_low < newton && newton < x_high;
        state.x = good && inside ? newton : 0.5 * (x_low + x_high);
        return;
    }
    // The bracket of x is closed: mix both ends such that E s = 1.
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
    (infeasible ? state.infeasible : state.feasible) = {beta,       x_low, x_high, share,
                                                        divergence, dual,  1.0};
    (infeasible ? state.bracket.high : state.bracket.low) = beta;
    const bool closed = state.bracket.closed() && state.bracket.high - state.bracket.low <=
                                                      2.0 * epsilon * state.bracket.high;
    if (close_enough(divergence, rho) || closed || (beta >= huge && !infeasible)) {
        mix(ball, search, infeasible, closed);
        return;
    }
    state.beta = next_value(search, state.bracket, beta, std::nan(""));
    reset_x_bracket(ball, state);
    state.mode = CurveMode::low_end;
    state.x = state.x_low;
}

// E s, and D at E s = 1 with its derivative in log c, as far as one sweep tells.
//
// Multiplying β and x by e^to_one, at fixed c, leads to E s = 1.
struct Balanced {
    double to_one, divergence, slope;
    bool exact;  // for powers; for others, all of this is so to first order in log E s
    bool sure;   // whether D − ρ has the sign of `divergence` − ρ
};

inline Balanced balance(const Ball& ball, const CurveSums& sums, double x) {
    const double unit = ball.frame.unit, total = sums.total * unit, off = std::fabs(1.0 - total);
    const double a0 = sums.rise0 * unit, a1 = sums.rise1 * unit, a2 = sums.rise2 * unit;
    // d E s/d log β = E s'x and dD/d log β = E t s'x at fixed c.
    Balanced at;
    at.to_one = std::clamp(-std::log(total) * total / a1, -300.0, 300.0);
    at.slope = x * (a1 - a2 * a0 / a1) * std::exp(at.to_one) / total;
    const double divergence = sums.divergence * unit;
    at.sure = visit(ball.divergence, [&](const auto& phi) {
        at.exact = requires { phi.divided(divergence, total); };
        if constexpr (requires { phi.divided(divergence, total); }) {
            at.divergence = phi.divided(divergence, total);
            return true;
        } else {
            at.divergence = divergence + (ball.divergence.origin * a1 + a2) * at.to_one;
            return off <= 1e-6 && off * off <= 0.01 * std::fabs(at.divergence - ball.rho);
        }
    });
    at.sure &= std::isfinite(at.divergence);
    return at;
}

// The smallest dual value at this c, and the factor of β and x that leads to it.
struct PowerDual {
    double value, factor;
};

// If D jumps from below to above ρ at this c, the dual value at E s = 1 is not the smallest one.
inline PowerDual dual_at(const Ball& ball, const CurveEnd& here, const Balanced& at, double beta,
                         double x) {
    return visit(ball.divergence, [&](const auto& phi) -> PowerDual {
        if constexpr (requires { phi.dual_factor(0.0, 0.0, 0.0); }) {
            const double m = phi.dual_factor(here.divergence, here.total, ball.rho);
            const double eta = -x / beta;
            return {eta + m * (here.first - eta * here.total),
                    std::pow(m, ball.divergence.parameter - 1.0)};
        } else {
            const double factor = std::exp(at.to_one);
            const CurveEnd balanced{1.0, here.first / here.total, at.divergence};
            return {lagrangian(ball, beta * factor, x * factor, balanced), factor};
        }
    });
}

// One step of Newton's method on log c, where x = β d ± β c.
//
// For these φ, s is a power of x or close to one, with a pole or a zero at the distance c from the
// largest loss. Multiplying β by a factor at fixed c multiplies s by a factor, so E s = 1 takes one
// step. What remains is one equation for c, which falls from ∞ (ρ = 0) to 0 (all mass on the
// largest loss).
inline void advance_power(const Ball& ball, Search& search) {
    CurveState& state = search.curve;
    const CurveSums& sums = search.sums.curve;
    const double beta = state.beta, x = state.x, unit = ball.frame.unit, rho = ball.rho;
    const CurveEnd here{sums.total * unit, sums.first * unit, sums.divergence * unit};
    const double c = std::fabs(x) / beta;
    const double off = std::fabs(1.0 - here.total);
    if (off <= 2e-13) {
        const bool at_end = c <= 1.0 / huge && here.divergence < rho;
        if (at_end || close_enough(here.divergence, rho)) {
            search.phase = Phase::done;
            return;
        }
    }
    if (search.rounds > 200) {
        start_bisection(ball, state);
        return;
    }
    const Balanced at = balance(ball, sums, x);
    if (!at.sure && !(off < 0.2 && 0.0 < at.divergence && at.divergence < infinity)) {
        // First solve E s = 1 at this c.
        const double most = at.exact ? 300.0 : 5.0;
        state.beta = std::min(beta * std::exp(std::clamp(at.to_one, -most, most)), huge);
        state.x = std::copysign(c * state.beta, x);
        return;
    }
    const bool stuck = off > 0.25 * std::exchange(state.residual, off);
    if (stuck && off <= 1e-9 && std::fabs(at.divergence - rho) <= 1e-12 * rho) {
        // The losses have too few digits to reach E s = 1: divide by E s instead.
        state.mixture[0] = {1.0, beta, x};
        state.below = state.above = {};  // one point only
        search.norm = here.total;
        state.dual = lagrangian(ball, beta, x, here);
        state.mixed = true;
        search.phase = Phase::write;
        return;
    }
    const double factor = std::exp(at.to_one);
    if (at.sure) {
        const bool infeasible = !(at.divergence < rho);
        (infeasible ? state.bracket.low : state.bracket.high) = c;
        const PowerDual dual = dual_at(ball, here, at, beta, x);
        (infeasible ? state.infeasible : state.feasible) = {
            beta, x, x, 0.0, at.divergence, dual.value, here.total};
        const double width = state.bracket.high - state.bracket.low;
        if (width < 0.0) {  // rounding can swap the ends
            state.bracket = {};
        } else if (0.0 < width && width <= 4.0 * epsilon * state.bracket.low) {
            // For large k, changing the last bit of c moves D from below to above ρ: mix both.
            mix(ball, search, infeasible, true);
            state.beta = beta * dual.factor;
            state.x = x * dual.factor;
            return;
        }
    }
    const double a0 = sums.rise0, a1 = sums.rise1;
    const double step = divergence_step(ball, at.divergence, at.slope);
    const double next = std::max(next_value(search, state.bracket, c, step), 1.0 / huge);
    // E s = 1 continues along d log β/d log c = −x a₀/a₁.
    state.beta = std::min(beta * factor * std::exp(-x * a0 / a1 * std::log(next / c)), huge);
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
