// The state of a search for a worst case between two sweeps over the losses.
//
// A sweep adds up a few numbers over all chunks; `advance` (inner.hpp) turns them into what the
// next sweep has to do. Whoever adds up the chunks in order (a loop, threads, a cluster) gets the
// same bits. Everything here is plain data: it can be copied, sent and stored as bytes.
#pragma once

#include <cmath>
#include <type_traits>

#include "divergence.hpp"
#include "frame.hpp"
#include "types.hpp"

namespace drolearn {

// What the next sweep has to do.
enum class Phase : int32_t { moments, search, fill, done };

// What the optimum looks like: the base weights, all mass on the largest loss, or neither.
enum class Shape : int32_t { base, peak, inner, lost };

// -- what sweeps add up ---------------------------------------------------------------------

// Mass, Σ w u and Σ w u² with u = d − shift, of the losses above a threshold.
struct Moments {
    double mass = 0, first = 0, second = 0;
    void join(const Moments& next) {
        mass += next.mass;
        first += next.first;
        second += next.second;
    }
};

// Σ w eˣ xʲ for j = 0 … 3 with x = β d.
struct ExponentialSums {
    double s0 = 0, s1 = 0, s2 = 0, s3 = 0;
    void join(const ExponentialSums& next) {
        s0 += next.s0;
        s1 += next.s1;
        s2 += next.s2;
        s3 += next.s3;
    }
};

// Σ w s, Σ w s d, Σ w φ(s) and Σ w s' yʲ for j = 0, 1, 2.
struct CurveSums {
    double total = 0, first = 0, divergence = 0, rise0 = 0, rise1 = 0, rise2 = 0;
    void join(const CurveSums& next) {
        total += next.total;
        first += next.first;
        divergence += next.divergence;
        rise0 += next.rise0;
        rise1 += next.rise1;
        rise2 += next.rise2;
    }
};

// Mass below, at and above a pivot, and the losses next to it on both sides.
struct PivotSums {
    double below = 0, equal = 0, above = 0, under = -infinity, over = infinity;
    void join(const PivotSums& next) {
        below += next.below;
        equal += next.equal;
        above += next.above;
        under = std::max(under, next.under);
        over = std::min(over, next.over);
    }
};

// Mass, Σ p d and D of weights that were written, and a term of the dual.
struct FillSums {
    double mass = 0, first = 0, divergence = 0, dual = 0;
    void join(const FillSums& next) {
        mass += next.mass;
        first += next.first;
        divergence += next.divergence;
        dual += next.dual;
    }
};

// The sums of one chunk or of all; which member it is follows from phase and divergence.
union Sums {
    FillSums fill;
    Moments moments;
    ExponentialSums exponential;
    CurveSums curve;
    PivotSums pivot;
    Sums() : fill() {}
};

// -- what each solver remembers -------------------------------------------------------------

// An open or closed interval in which the unknown of a search lies.
struct Bracket {
    double low = 0, high = infinity;
    bool closed() const { return low > 0.0 && high < infinity; }
};

struct Chi2State {
    double level;      // the threshold is η = shift + level
    double last_mass;  // of the active set before
};

struct KLState {
    double beta;  // 1/α
    Bracket bracket;
};

struct QuantileState {
    double pivot, keep;            // the loss at the quantile, and what is left of its weight
    double low, high;              // bracket of the pivot
    double below_low, below_high;  // mass below the bracket's ends
};

// How a curve is searched: by Newton's method, or by bisection in β around bisection in x, which
// looks at both ends of the bracket of x first.
enum class CurveMode : int32_t { newton, low_end, high_end, bisection };

// The sums at one end of a bracket of x.
struct CurveEnd {
    double total, first, divergence;
};

// E s = 1 at one β, by a mixture of two x.
struct CurveCorner {
    double beta, x_low, x_high, share, divergence, dual;
};

// One of the points whose weights are mixed.
struct MixturePoint {
    double share, beta, x;
};

struct CurveState {
    double beta, x;        // 1/α, and the tilt of the largest loss
    Bracket bracket;       // of β; of the distance c = |x|/β for powers
    double x_low, x_high;  // bracket of x
    CurveMode mode;
    double residual;  // |E s − 1| before
    CurveEnd low_end, high_end;
    CurveCorner low_corner, high_corner;  // the closest inside and outside of the ball
    MixturePoint mixture[4];
    bool mixed;   // whether the weights are those of the mixture
    double dual;  // the dual value of the mixture
};

// A search: all that is known between two sweeps.
struct Search {
    Phase phase = Phase::moments;
    Shape shape = Shape::inner;
    int64_t rounds = 0;
    bool rescaled = false;  // whether the weights were divided by their sum
    double norm = 1;        // what weights are divided by
    double shift = 0;       // what moments are taken about
    Sums sums;              // of the last sweep
    union {
        Chi2State chi2;
        KLState kl;
        QuantileState quantile;
        CurveState curve;
    };
    Search() : curve() {}
};

static_assert(std::is_trivially_copyable_v<Search>);

// A ball, and the losses as it sees them.
struct Ball {
    const Divergence& divergence;
    Frame frame;
    double rho;
};

// Beyond this 1/α the weights of all but the largest loss are below the smallest double.
inline constexpr double huge = 1e290;

// Relative 1e-12, and what rounding leaves of a sum of numbers next to zero.
inline bool close_enough(double divergence, double rho) {
    return std::fabs(divergence - rho) <= 1e-12 * rho + 1e-15;
}

// value · e^step if that lies in the bracket, else the bracket's middle on a log scale.
inline double next_value(const Search& search, const Bracket& bracket, double value, double step) {
    const double trial = value * std::exp(std::clamp(step, -5.0, 5.0));  // NaN stays NaN
    const int64_t every = search.rounds < 16 ? 8 : 2;
    const bool halve = bracket.closed() && search.rounds % every == every - 1;
    if (bracket.low < trial && trial < bracket.high && !halve) return trial;
    if (bracket.closed()) return std::sqrt(bracket.low) * std::sqrt(bracket.high);
    // Without a bracket: a bit beyond the step, or without one further out each time, as the
    // answer may have hundreds of digits.
    double factor = std::exp2(std::min(static_cast<double>(search.rounds), 100.0));
    if (std::fabs(step) < 1.0) factor = std::exp(4.0 * std::fabs(step) + 1e-12);
    if (bracket.high == infinity) return std::min(value * factor, huge);
    return std::max(value / factor, 1.0 / huge);
}

// h = log D/(C − D) − log ρ/(C − ρ) and two derivatives in D.
//
// D grows like β² at first and levels off at C: h is close to linear in log β.
struct Logit {
    double h, first, second;

    Logit(double divergence, double rho, double ceiling)
        : h(std::log(divergence / rho)), first(1.0 / divergence),
          second(-1.0 / (divergence * divergence)) {
        if (ceiling < infinity) {
            const double room = ceiling - divergence;
            h += std::log((ceiling - rho) / room);
            first += 1.0 / room;
            second += 1.0 / (room * room);
        }
    }
};

// First guess of β = 1/α from the variance: D ≈ β² Var d / (2 φ''(1)) for small ρ.
//
// Zero if the moments have to be taken once more, about the mean: their digits have cancelled.
inline double beta_of_moments(const Ball& ball, Search& search) {
    const Moments& sums = search.sums.moments;
    const double offset = sums.first / sums.mass;
    const double variance = sums.second / sums.mass - offset * offset;
    if (variance <= 1e-6 * offset * offset && search.rounds < 3) {
        search.shift += offset;
        return 0.0;
    }
    search.phase = Phase::search;
    return std::sqrt(2.0 * ball.divergence.curvature * ball.rho / std::max(variance, 1e-300));
}

}  // namespace drolearn
