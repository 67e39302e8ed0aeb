// The range of the losses, and the scaling that solvers use.
//
// Solvers work with d = (z − max z)·2^e ≤ 0, where e is chosen such that the spread of d is about
// one. Results then do not depend on the size or the offset of the losses, and d keeps its relative
// precision next to the largest loss, where most of the weight goes.
#pragma once

#include <algorithm>
#include <cmath>
#include <type_traits>

#include "divergence.hpp"
#include "target.hpp"
#include "types.hpp"

namespace drolearn {

// The range of a chunk of losses. Rows of weight zero count only for `finite_check`.
struct Survey {
    double finite_check = 0;  // zero if all losses are finite, else NaN
    double low = infinity, high = -infinity;
    double peak = 0;  // mass of the largest loss
    double mass = 0;

    void join(const Survey& next) {
        peak = high > next.high ? peak : next.high > high ? next.peak : peak + next.peak;
        finite_check += next.finite_check;
        low = std::min(low, next.low);
        high = std::max(high, next.high);
        mass += next.mass;
    }
};

struct Frame {
    double scale;           // 2^e: d = z·scale − top
    double top;             // the largest loss, scaled
    double bottom;          // the smallest d
    double unit;            // one over the sum of the raw base weights
    double peak;            // base mass of the largest loss, including ties
    double max_divergence;  // D with all mass on the largest loss
    double size;            // number of losses

    // d of a loss, at most zero: only rows of weight zero can lie above the largest loss. z·scale
    // is exact, so d has one rounding error.
    PER_NUMBER double depth(double z) const {
        const double d = z * scale - top;
        return 0.5 * (d - std::fabs(d));  // min(d, 0)
    }

    // The same for a chunk. Equal weights need no minimum.
    template <class Weights>
    PER_NUMBER double depth_of(double z) const {
        if constexpr (std::is_same_v<Weights, EqualWeights>) return z * scale - top;
        return depth(z);
    }
};

namespace TARGET {

// The survey of one chunk. `peak` is computed only if the largest loss is at least `known`, a loss
// found in another chunk.
template <class Weights>
PER_CHUNK Survey survey(Chunk<Weights> chunk, double known) {
    const double* z = chunk.z;
    const auto b = chunk.b;
    const size_t n = chunk.n;
    // Both halves at once with separate sums: additions to one sum would wait for each other.
    const size_t half = n / 2;
    double finite_check = 0, low = infinity, high = -infinity, mass = 0, peak = 0;
    double finite_check2 = 0, low2 = infinity, high2 = -infinity, mass2 = 0;
#pragma omp simd reduction(+ : finite_check, mass, finite_check2, mass2) \
    reduction(min : low, low2) reduction(max : high, high2)
    for (size_t i = 0; i < half; ++i) {
        const size_t k = half + i;
        finite_check += z[i] * 0.0;
        finite_check2 += z[k] * 0.0;
        mass += b[i];
        mass2 += b[k];
        const double lower = select(b[i] > 0.0, z[i], infinity);
        const double lower2 = select(b[k] > 0.0, z[k], infinity);
        const double upper = select(b[i] > 0.0, z[i], -infinity);
        const double upper2 = select(b[k] > 0.0, z[k], -infinity);
        low = lower < low ? lower : low;
        low2 = lower2 < low2 ? lower2 : low2;
        high = upper > high ? upper : high;
        high2 = upper2 > high2 ? upper2 : high2;
    }
    for (size_t i = 2 * half; i < n; ++i) {  // the last loss if n is odd
        finite_check += z[i] * 0.0;
        mass += b[i];
        if (!(b[i] > 0.0)) continue;
        low = std::min(low, z[i]);
        high = std::max(high, z[i]);
    }
    finite_check += finite_check2;
    mass += mass2;
    low = std::min(low, low2);
    high = std::max(high, high2);
    if (high >= known) {
#pragma omp simd reduction(+ : peak)
        for (size_t i = 0; i < n; ++i) peak += select(z[i] == high, b[i], 0.0);
    }
    return {finite_check, low, high, peak, mass};
}

inline Survey survey(const Losses& losses, double known) {
    return with_weights(losses, [&](auto chunk) { return survey(chunk, known); });
}

inline Frame make_frame(const Divergence& divergence, size_t n, const Survey& survey) {
    Frame frame;
    // Half the spread: the difference itself may overflow.
    const double spread = 0.5 * survey.high - 0.5 * survey.low;
    int exponent = 0;
    if (spread > 0.0) std::frexp(spread, &exponent);
    frame.scale = std::ldexp(1.0, -std::clamp(exponent, -1020, 1020));
    frame.top = survey.high * frame.scale;
    frame.bottom = survey.low * frame.scale - frame.top;
    frame.unit = 1.0 / survey.mass;
    frame.peak = std::min(survey.peak / survey.mass, 1.0);
    frame.max_divergence = infinity;
    if (divergence.family != Family::cvar && divergence.phi_zero < infinity) {
        const double others = (1.0 - frame.peak) * divergence.phi_zero;
        frame.max_divergence = frame.peak * phi_of(divergence, 1.0 / frame.peak) + others;
    }
    frame.size = static_cast<double>(n);
    return frame;
}

}  // namespace TARGET
}  // namespace drolearn
