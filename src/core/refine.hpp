// Small balls: the last steps of a search, in numbers that do not cancel.
//
// In a ball of radius ρ, s − 1 is of the size √ρ and φ(s) of the size ρ, so a sum of φ(s) computed
// from s has an absolute error of about 1e-16, which is large relative to ρ. This file computes
// s − 1 and φ(s) directly from t = φ'(s), with a small relative error. With
//
//     t = β (d − shift) + ν,    shift = λ of the search so far,
//
// it solves E (s − 1) = 0 and E φ(s) = ρ by Newton's method on (log β, ν). Derivatives, with
// u = d − shift and Aⱼ = E s'uʲ:
//
//     ∂E s/∂ν = A₀,    ∂E s/∂β = A₁,    ∂D/∂ν = β A₁ + ν A₀,
//     dD/d log β = β² (A₂ − A₁²/A₀) along E s = 1.
//
// For φ with a finite slope at infinity, s has a pole at x = t − origin = 0. Rows next to it use
// x = x_top + β d, which is accurate there; x_top changes by the same steps as ν − β shift.
//
// Rounding the weights to doubles, p (1 + δ) with |δ| ≤ 2⁻⁵³, changes D by at most
//
//     |ΔD| ≤ 2⁻⁵³ Σ p |φ'(s)| ≈ 2⁻⁵³ √(2 φ''(1) ρ),
//
// which limits what can be attained: a relative error of 2⁻⁵³ √(2 φ''(1)/ρ), or 2.2e-10 for χ² at
// ρ = 1e-12. Rounding of the base weights contributes as much again.
#pragma once

#include "curve.hpp"
#include "elementary.hpp"
#include "search.hpp"

namespace drolearn::TARGET {

// Radii below this are refined. At this radius, the error of the search itself is 1e-10 ρ.
inline constexpr double refine_below = 1e-5;

inline bool can_refine(const Ball& ball) {
    const Divergence& divergence = ball.divergence;
    return ball.rho < refine_below && !divergence.is_quantile() && !divergence.has_linear_pieces;
}

// Writes the weights, and returns E (s − 1), E s d, E φ(s), and E s' uʲ for j = 0, 1, 2.
template <class Phi, class Weights>
PER_CHUNK CurveSums refine_sums(Phi phi, Chunk<Weights> chunk, Frame frame,
                                const RefineState& state, double* out) {
    const double beta = state.beta, shift = state.shift, nu = state.nu, x_top = state.x_top;
    const double unit = frame.unit;
    const double* z = chunk.z;
    const auto b = chunk.b;
    const size_t n = chunk.n;
    double excess = 0, first = 0, divergence = 0, rise0 = 0, rise1 = 0, rise2 = 0;
#pragma omp simd reduction(+ : excess, first, divergence, rise0, rise1, rise2)
    for (size_t i = 0; i < n; ++i) {
        const double d = frame.depth_of<Weights>(z[i]);
        const double u = d - shift;
        const NearPoint at = phi.near_one(beta * u + nu, x_top + beta * d);
        const double w = b[i] * unit, ds = b[i] * at.ds;
        // w + w (s − 1) has one rounding error less than w s, which is accurate for small s.
        out[i] = select(at.s > 0.5, w + w * at.excess, w * at.s);
        excess += b[i] * at.excess;
        first += b[i] * at.s * d;
        divergence += b[i] * at.phi;
        rise0 += ds;
        rise1 += ds * u;
        rise2 += ds * u * u;
    }
    return {excess, first, divergence, rise0, rise1, rise2};
}

// Starts at the multipliers of the search.
inline void start_refine(const Ball& ball, Search& search, const Multipliers& start) {
    RefineState& state = search.refine;
    state.tried = true;
    const bool usable = start.alpha > 0.0 && start.alpha < infinity && std::isfinite(start.lam);
    if (!usable) return;
    // A curve whose weights are written already has to write them again if refining fails.
    state.resume = search.phase == Phase::done ? Phase::search : search.phase;
    state.beta = 1.0 / start.alpha;
    state.shift = start.lam;
    state.x_top = ball.divergence.is_curve() ? search.curve.x : 0.0;
    search.phase = Phase::refine;
}

// Whether s is defined for the largest loss: s ≤ 1/peak, up to rounding.
inline bool in_domain(const Ball& ball, const RefineState& state) {
    if (!ball.divergence.is_curve()) return true;
    const double largest = slope_of(ball.divergence, 1.0 / ball.frame.peak);
    return state.x_top <= largest + 1e-9 * std::fabs(largest);
}

// One step of Newton's method on (log β, ν). Ends at the best point when rounding prevents
// progress, and continues with the unrefined solution if there is no good point.
inline void advance_refine(const Ball& ball, Search& search) {
    RefineState& state = search.refine;
    const CurveSums& sums = search.sums.curve;
    const double unit = ball.frame.unit, rho = ball.rho, beta = state.beta, nu = state.nu;
    const double excess = sums.total * unit, divergence = sums.divergence * unit;
    const double a0 = sums.rise0 * unit, a1 = sums.rise1 * unit, a2 = sums.rise2 * unit;
    // E (s − 1) changes D only to second order: 1e-15 is as good as 1e-12 for D.
    const double error = std::fabs(divergence - rho) / rho + 1e3 * std::fabs(excess);
    const bool improved = error <= 0.5 * state.best_error;
    if (error < state.best_error) {
        state.best_error = error;
        state.best_beta = beta;
        state.best_nu = nu;
        state.best_x_top = state.x_top;
    }
    if (error <= 1e-12 || state.last) {
        state.refined = true;
        search.phase = Phase::done;
        return;
    }
    const double to_one = -excess / a0;
    const double at_one = divergence + (beta * a1 + nu * a0) * to_one;
    const double step = divergence_step(ball, at_one, beta * beta * (a2 - a1 * a1 / a0));
    const double next = beta * std::exp(std::clamp(step, -1.0, 1.0));
    const double move = to_one - (next - beta) * a1 / a0;
    state.beta = next;
    state.nu = nu + move;
    state.x_top += move - (next - beta) * state.shift;
    const bool usable = std::isfinite(state.nu) && next > 0.0 && in_domain(ball, state);
    if (usable && improved && ++state.rounds < 30) return;
    state.beta = state.best_beta;
    state.nu = state.best_nu;
    state.x_top = state.best_x_top;
    state.last = true;
    if (!(state.best_error <= 1e-6)) {
        search.phase = state.resume;
    } else if (error == state.best_error) {  // the weights of this point are written already
        state.refined = true;
        search.phase = Phase::done;
    }
}

}  // namespace drolearn::TARGET
