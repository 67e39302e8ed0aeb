// KL: φ(s) = s log s − s + 1, so p = w e^(β d) / norm with β = 1/α.
//
// With ψ(β) = log Σ w e^(β d), D = β ψ'(β) − ψ(β) increases with β. D = ρ is one equation for β.
#pragma once

#include "elementary.hpp"
#include "search.hpp"

namespace drolearn::TARGET {

template <class Weights>
PER_CHUNK ExponentialSums exponential_sums(Chunk<Weights> chunk, Frame frame, double beta) {
    const double* z = chunk.z;
    const auto b = chunk.b;
    const size_t n = chunk.n;
    double s0 = 0, s1 = 0, s2 = 0, s3 = 0;
#pragma omp simd reduction(+ : s0, s1, s2, s3)
    for (size_t i = 0; i < n; ++i) {
        const double x = beta * frame.depth_of<Weights>(z[i]);
        const double e = b[i] * fast_exp(x), ex = e * x, exx = ex * x;
        s0 += e;
        s1 += ex;
        s2 += exx;
        s3 += exx * x;
    }
    return {s0, s1, s2, s3};
}

// Writes p = w e^(β d) / norm.
template <class Weights>
PER_CHUNK WriteSums write_kl(Chunk<Weights> chunk, Frame frame, const Search& search, double* out) {
    const double beta = search.kl.beta, scale = frame.unit / search.norm;
    const double* z = chunk.z;
    const auto b = chunk.b;
    const size_t n = chunk.n;
    double mass = 0, first = 0;
#pragma omp simd reduction(+ : mass, first)
    for (size_t i = 0; i < n; ++i) {
        const double d = frame.depth_of<Weights>(z[i]);
        const double p = fast_exp(beta * d) * scale * b[i];
        out[i] = p;
        mass += p;
        first += p * d;
    }
    return {mass, first, 0.0, 0.0};
}

// One step of Halley's method on log β.
inline void advance_kl(const Ball& ball, Search& search) {
    KLState& state = search.kl;
    const ExponentialSums& sums = search.sums.exponential;
    const double rho = ball.rho, max_divergence = ball.frame.max_divergence;
    const double total = sums.s0 * ball.frame.unit;
    const double m1 = sums.s1 / sums.s0, m2 = sums.s2 / sums.s0, m3 = sums.s3 / sums.s0;
    const double log_total = std::log(total);
    const double divergence = m1 - log_total;
    search.norm = total;
    if (close_enough(divergence, rho)) {
        search.phase = Phase::write;
        return;
    }
    if (divergence < rho) {
        state.bracket.low = state.beta;
        if (state.beta >= huge) {
            search.phase = Phase::write;
            return;
        }
    } else {
        state.bracket.high = state.beta;
    }
    double step = std::nan("");
    const double variance = m2 - m1 * m1;
    if (variance > 0.0 && 0.0 < divergence && divergence < max_divergence) {
        const Logit logit(divergence, rho, max_divergence);
        const double second = 2.0 * variance + m3 - 3.0 * m1 * m2 + 2.0 * m1 * m1 * m1;
        const double slope = variance * logit.first;
        step = -logit.h / slope;
        const double curvature = second * logit.first + variance * variance * logit.second;
        const double halley = 1.0 - 0.5 * logit.h * curvature / (slope * slope);
        if (0.5 < halley && halley < 2.0) step /= halley;
        if (std::fabs(step) * (1.0 - m1) <= 1e-5) {
            // Convergence is cubic: after this step the errors of β and of the norm are below
            // rounding.
            state.beta *= std::exp(step);
            search.norm = std::exp(log_total + step * (m1 + 0.5 * step * (m1 + variance)));
            search.phase = Phase::write;
            return;
        }
    }
    if (state.bracket.high - state.bracket.low <= 4.0 * epsilon * state.bracket.low) {
        search.phase = Phase::write;
        return;
    }
    state.beta = std::min(next_value(search, state.bracket, state.beta, step), huge);
}

}  // namespace drolearn::TARGET
