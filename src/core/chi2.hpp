// χ²: φ(s) = (s − 1)², so p = w (d − η)₊ / norm with a threshold η.
//
// Let the losses above η (the active set) have mass B, mean m and variance v. Then D = ρ means
//
//     m − η = sqrt(v / (B (1 + ρ) − 1)).
//
// Each sweep drops the losses below η and solves again. This gives an increasing sequence of η that
// never exceeds the optimum and reaches it after finitely many steps.
#pragma once

#include "elementary.hpp"
#include "search.hpp"

namespace drolearn::TARGET {

// The moments of the losses above shift + level. The threshold has two parts because it may be much
// closer to the mean than to zero.
template <class Weights>
PER_CHUNK Moments moments(Chunk<Weights> chunk, Frame frame, double level, double shift) {
    const double* z = chunk.z;
    const auto b = chunk.b;
    const size_t n = chunk.n;
    // Both halves at once with separate sums: additions to one sum would wait for each other.
    const size_t half = n / 2;
    double mass = 0, first = 0, second = 0, mass2 = 0, first2 = 0, second2 = 0;
#pragma omp simd reduction(+ : mass, first, second, mass2, first2, second2)
    for (size_t i = 0; i < half; ++i) {
        const double u = frame.depth_of<Weights>(z[i]) - shift;
        const double u2 = frame.depth_of<Weights>(z[half + i]) - shift;
        const double w = select(u > level, b[i], 0.0), w2 = select(u2 > level, b[half + i], 0.0);
        mass += w;
        mass2 += w2;
        first += w * u;
        first2 += w2 * u2;
        second += w * u * u;
        second2 += w2 * u2 * u2;
    }
    if (n % 2) {
        const double u = frame.depth_of<Weights>(z[n - 1]) - shift;
        const double w = select(u > level, b[n - 1], 0.0);
        mass += w;
        first += w * u;
        second += w * u * u;
    }
    return {mass + mass2, first + first2, second + second2};
}

// Writes p = w (d − η)₊ / norm.
template <class Weights>
PER_CHUNK WriteSums write_chi2(Chunk<Weights> chunk, Frame frame, const Search& search,
                               double* out) {
    const double shift = search.shift, level = search.chi2.level;
    const double scale = 1.0 / search.norm, unit = frame.unit;
    const double* z = chunk.z;
    const auto b = chunk.b;
    const size_t n = chunk.n;
    double mass = 0, first = 0, divergence = 0;
#pragma omp simd reduction(+ : mass, first, divergence)
    for (size_t i = 0; i < n; ++i) {
        const double d = frame.depth_of<Weights>(z[i]);
        const double u = (d - shift) - level;
        const double s = select(u > 0.0, u, 0.0) * scale;
        out[i] = b[i] * (s * unit);
        mass += b[i] * s;
        first += b[i] * s * d;
        divergence += b[i] * (s - 1.0) * (s - 1.0);
    }
    return {mass * unit, first * unit, divergence * unit, 0.0};
}

// Computes the next threshold.
inline void advance_chi2(const Ball& ball, Search& search) {
    const Frame& frame = ball.frame;
    Chi2State& state = search.chi2;
    const Moments& sums = search.sums.moments;
    const double mass = sums.mass * frame.unit;
    const double offset = mass > 0.0 ? sums.first / sums.mass : 0.0;
    const double second = mass > 0.0 ? sums.second / sums.mass : 0.0;
    const double mean = search.shift + offset, variance = second - offset * offset;
    const double room = mass * (1.0 + ball.rho) - 1.0;
    const double moved = mean - search.shift;
    const double old = state.level - moved;  // the last threshold, relative to the mean
    search.shift = mean;
    if (second > 16.0 * variance && moved != 0.0 && mass > 0.0 && search.rounds < 60) {
        state.level = old;  // the variance has lost digits: compute it again about the mean
        return;
    }
    if (!(variance >= 0.0 && room > 0.0)) {
        if (search.phase == Phase::moments) {
            search.phase = Phase::write;
            search.shape = Shape::peak;
        } else {  // the guess was too high: start again with all losses
            search.phase = Phase::moments;
            state.level = -infinity;
        }
        return;
    }
    double width = std::sqrt(variance / room);
    // Almost tied losses, whose squares underflow: share the mass evenly.
    if (variance < 1e-200) width = std::max(width, 1e-90);
    state.level = (offset - moved) - width;
    search.norm = mass * width;
    // The active set is final if it did not change, or if the step is so small that a change is
    // unlikely. `check_weights` verifies the result after the weights are written.
    const bool same = mass == state.last_mass || mean - width < frame.bottom;
    const double short_step = std::max(3e-7, 2.0 / frame.size) * width;
    const bool settled = same || std::fabs(state.level - old) <= short_step;
    search.phase = settled ? Phase::write : Phase::search;
    state.last_mass = mass;
}

}  // namespace drolearn::TARGET
