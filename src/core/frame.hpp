// One look at the losses: their range, the largest loss and its mass.
//
// Losses are seen as d = (z − max z) · 2^e ≤ 0, with e such that the spread of d is about one:
// nothing that follows depends on the size or the offset of the losses, and d keeps its relative
// precision next to the largest loss, where the weights are decided.
#pragma once

#include <algorithm>
#include <cmath>
#include <type_traits>

#include "divergence.hpp"
#include "target.hpp"
#include "types.hpp"

namespace drolearn {

// What a chunk of losses tells. Rows without mass count only for `nothing`.
struct Survey {
    double nothing = 0;  // zero if all losses are finite, else NaN
    double low = infinity, high = -infinity;
    double peak = 0;  // mass at the largest loss
    double mass = 0;

    void join(const Survey& next) {
        peak = high > next.high ? peak : next.high > high ? next.peak : peak + next.peak;
        nothing += next.nothing;
        low = std::min(low, next.low);
        high = std::max(high, next.high);
        mass += next.mass;
    }
};

struct Frame {
    double inv;      // a power of two: d = z·inv − top
    double top;      // the largest loss, scaled
    double bottom;   // the smallest d
    double unit;     // one over the total of the raw base weights
    double peak;     // base mass of the largest loss, ties included
    double ceiling;  // the divergence at which all mass is on the largest loss
    double size;     // number of losses

    // At most zero: only rows without mass can lie above the top. z·inv is exact, so d is one
    // rounding away from the truth.
    PER_NUMBER double depth(double z) const {
        const double d = z * inv - top;
        return 0.5 * (d - std::fabs(d));  // min(d, 0)
    }

    // The same for a chunk with weights of one kind: with equal weights there is nothing to cut.
    template <class Weights>
    PER_NUMBER double depth_of(double z) const {
        if constexpr (std::is_same_v<Weights, EqualWeights>) return z * inv - top;
        return depth(z);
    }
};

namespace TARGET {

// The mass at the largest loss is needed only where that reaches `known`, a loss seen elsewhere.
template <class Weights>
PER_CHUNK Survey survey(Chunk<Weights> chunk, double known) {
    const double* z = chunk.z;
    const auto b = chunk.b;
    const size_t n = chunk.n;
    // Two halves at once, with sums of their own: one would wait for its last addition.
    const size_t half = n / 2;
    double nothing = 0, low = infinity, high = -infinity, mass = 0, peak = 0;
    double nothing2 = 0, low2 = infinity, high2 = -infinity, mass2 = 0;
#pragma omp simd reduction(+ : nothing, mass, nothing2, mass2) reduction(min : low, low2) \
    reduction(max : high, high2)
    for (size_t i = 0; i < half; ++i) {
        const size_t k = half + i;
        nothing += z[i] * 0.0;
        nothing2 += z[k] * 0.0;
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
    for (size_t i = 2 * half; i < n; ++i) {  // the last of an odd number
        nothing += z[i] * 0.0;
        mass += b[i];
        if (!(b[i] > 0.0)) continue;
        low = std::min(low, z[i]);
        high = std::max(high, z[i]);
    }
    nothing += nothing2;
    mass += mass2;
    low = std::min(low, low2);
    high = std::max(high, high2);
    if (high >= known) {
#pragma omp simd reduction(+ : peak)
        for (size_t i = 0; i < n; ++i) peak += select(z[i] == high, b[i], 0.0);
    }
    return {nothing, low, high, peak, mass};
}

inline Survey survey(const Losses& losses, double known) {
    return with_weights(losses, [&](auto chunk) { return survey(chunk, known); });
}

inline Frame make_frame(const Divergence& divergence, size_t n, const Survey& seen) {
    Frame frame;
    const double spread = 0.5 * seen.high - 0.5 * seen.low;  // halves: the difference may overflow
    int exponent = 0;
    if (spread > 0.0) std::frexp(spread, &exponent);
    frame.inv = std::ldexp(1.0, -std::clamp(exponent, -1020, 1020));
    frame.top = seen.high * frame.inv;
    frame.bottom = seen.low * frame.inv - frame.top;
    frame.unit = 1.0 / seen.mass;
    frame.peak = std::min(seen.peak / seen.mass, 1.0);
    frame.ceiling = infinity;
    if (divergence.family != Family::cvar && divergence.phi_zero < infinity) {
        const double rest = (1.0 - frame.peak) * divergence.phi_zero;
        frame.ceiling = frame.peak * phi_of(divergence, 1.0 / frame.peak) + rest;
    }
    frame.size = static_cast<double>(n);
    return frame;
}

}  // namespace TARGET
}  // namespace drolearn
