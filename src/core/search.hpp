// The state of a worst-case search between two sweeps over the losses.
//
// A sweep adds up a few numbers over all chunks; `advance` (inner.hpp) computes from them what the
// next sweep has to do. Any way of adding up the chunks in order (a loop, threads, a cluster) gives
// the same bits. All types here are plain data: they can be copied, sent and stored as bytes.
#pragma once

#include <cmath>
#include <type_traits>

#include "divergence.hpp"
#include "frame.hpp"
#include "types.hpp"

namespace drolearn {

// True or false. States travel as bytes, and a byte of a damaged state need not be a bool.
using Flag = uint8_t;

// What the next sweep has to do.
//
//     moments   mean and variance, for the first guess
//     search    the sums of the solver
//     refine    the sums of refine.hpp, and write the weights
//     write     write the weights
enum class Phase : int32_t { moments, search, refine, write, done };

// The shape of the optimum: the base weights, all mass on the largest loss, or in between; `failed`
// if the search has failed.
enum class Shape : int32_t { base, peak, interior, failed };

// -- sums of a sweep ------------------------------------------------------------------------

// Σ w, Σ w u and Σ w u² with u = d − shift, over the losses above a threshold.
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

// Σ w s (Σ w (s − 1) in the phase `refine`), Σ w s d, Σ w φ(s), and Σ w s' yʲ for j = 0, 1, 2.
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

// Mass below, at and above a pivot, and the nearest losses below and above it.
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

// Σ p, Σ p d and D of the weights that were written, and a term of the dual value.
struct WriteSums {
    double mass = 0, first = 0, divergence = 0, dual = 0;
    void join(const WriteSums& next) {
        mass += next.mass;
        first += next.first;
        divergence += next.divergence;
        dual += next.dual;
    }
};

// The sums of one chunk or of all chunks. Phase and divergence tell which member is active.
union Sums {
    WriteSums write;
    Moments moments;
    ExponentialSums exponential;
    CurveSums curve;
    PivotSums pivot;
    Sums() : write() {}
};

// -- state of each solver -------------------------------------------------------------------

// An interval that contains the unknown of a search; at first all positive numbers.
struct Bracket {
    double low = 0, high = infinity;
    bool closed() const { return low > 0.0 && high < infinity; }
};

struct Chi2State {
    double level;      // the threshold is η = shift + level
    double last_mass;  // mass of the previous active set
};

struct KLState {
    double beta;  // 1/α
    Bracket bracket;
};

struct QuantileState {
    double pivot, keep;            // the loss at the quantile, and p/w there
    double low, high;              // bracket of the pivot
    double below_low, below_high;  // mass below both ends of the bracket
};

// Newton's method, or bisection in β around bisection in x. The bisection evaluates the low and the
// high end of the bracket of x first.
enum class CurveMode : int32_t { newton, low_end, high_end, bisection };

// E s, E s d and E φ(s) at one x.
struct CurveEnd {
    double total, first, divergence;
};

// A mixture of two x at this β; `share` is the weight of x_high. It has E s = `total`: divided by
// that, the mixture has E s = 1 and the divergence and the dual value that are given here.
struct BalancedPoint {
    double beta, x_low, x_high, share, divergence, dual, total;
};

// One point of a mixture, and its weight.
struct MixturePoint {
    double share, beta, x;
};

// The weight of the infeasible point in a mixture, and D of this mixture.
struct ShareEnd {
    double share, divergence;
};

struct CurveState {
    double beta, x;        // 1/α, and x of the largest loss
    Bracket bracket;       // of β; of c = |x|/β in `advance_power`
    double x_low, x_high;  // bracket of x
    CurveMode mode;
    double residual = infinity;  // previous |E s − 1|
    CurveEnd low_end, high_end;
    BalancedPoint feasible, infeasible;  // the points nearest to D = ρ on both sides
    MixturePoint mixture[4];
    Flag mixed;             // whether the weights are those of the mixture
    double share;           // the weight of the infeasible point in the mixture
    ShareEnd below, above;  // the mixtures nearest to D = ρ on both sides
    int32_t corrections;    // of the share
    double dual;            // the dual value of the mixture
};

// t = β (d − shift) + ν = origin + x_top + β d, see refine.hpp.
struct RefineState {
    Flag tried = false;
    Flag refined = false;         // whether the weights are those of this state
    Flag last = false;            // whether the next sweep is the last one
    Phase resume = Phase::write;  // where to continue if refining fails
    int32_t rounds = 0;
    double beta = 0, shift = 0, nu = 0, x_top = 0;
    double best_error = infinity, best_beta = 0, best_nu = 0, best_x_top = 0;
};

// Everything that is known between two sweeps.
struct Search {
    Phase phase = Phase::moments;
    Shape shape = Shape::interior;
    int64_t rounds = 0;
    Flag rescaled = false;  // whether the weights were divided by their sum
    double norm = 1;        // divisor of the weights
    double shift = 0;       // centre of the moments
    Sums sums;              // of the last sweep
    RefineState refine;
    union {
        Chi2State chi2;
        KLState kl;
        QuantileState quantile;
        CurveState curve;
    };
    Search() : curve() {}
};

static_assert(std::is_trivially_copyable_v<Search>);

// A divergence ball, and the scaling of the losses.
struct Ball {
    const Divergence& divergence;
    Frame frame;
    double rho;
};

// For β = 1/α beyond this, the weights of all but the largest loss underflow.
inline constexpr double huge = 1e290;

// |D − ρ| ≤ 1e-12 ρ, plus the rounding error of a sum of φ(s) next to s = 1.
inline bool close_enough(double divergence, double rho) {
    return std::fabs(divergence - rho) <= 1e-12 * rho + 1e-15;
}

// value · e^step if that lies in the bracket, else the geometric mean of the bracket.
inline double next_value(const Search& search, const Bracket& bracket, double value, double step) {
    const double trial = value * std::exp(std::clamp(step, -5.0, 5.0));  // NaN stays NaN
    const int64_t every = search.rounds < 16 ? 8 : search.rounds < 48 ? 2 : 1;
    const bool halve = bracket.closed() && search.rounds % every == every - 1;
    if (bracket.low < trial && trial < bracket.high && !halve) return trial;
    if (bracket.closed()) return std::sqrt(bracket.low) * std::sqrt(bracket.high);
    // The bracket is open on one side: go a bit beyond the step. Without a step, multiply by
    // 2^round, as the solution may be hundreds of orders of magnitude away.
    double factor = std::exp2(std::min(static_cast<double>(search.rounds), 100.0));
    if (std::fabs(step) < 1.0) factor = std::exp(4.0 * std::fabs(step) + 1e-12);
    if (bracket.high == infinity) return std::min(value * factor, huge);
    return std::max(value / factor, 1.0 / huge);
}

// h = log(D/(C − D)) − log(ρ/(C − ρ)) with C = max D, and its first two derivatives in D.
//
// D grows like β² for small β and tends to C for large β, so h is almost linear in log β.
struct Logit {
    double h, first, second;

    Logit(double divergence, double rho, double max_divergence)
        : h(std::log(divergence / rho)), first(1.0 / divergence),
          second(-1.0 / (divergence * divergence)) {
        if (max_divergence < infinity) {
            const double room = max_divergence - divergence;
            h += std::log((max_divergence - rho) / room);
            first += 1.0 / room;
            second += 1.0 / (room * room);
        }
    }
};

// First guess of β = 1/α: D ≈ β² Var d / (2 φ''(1)) for small ρ.
//
// Returns zero if the moments have to be computed again about the mean because the variance has
// lost its digits.
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
