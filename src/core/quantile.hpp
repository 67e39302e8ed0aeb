// Total variation and CVaR. The solution is determined by one loss, the pivot, which is a quantile.
//
// Total variation moves mass ρ from the smallest losses to the largest: p = 0 below the pivot and
// p = w above it. CVaR keeps the largest losses: p = 0 below the pivot and p = w/level above it. At
// the pivot p = keep · w.
#pragma once

#include <bit>

#include "elementary.hpp"
#include "search.hpp"

namespace drolearn::TARGET {

template <class Weights>
PER_CHUNK PivotSums pivot_sums(Chunk<Weights> chunk, Frame frame, double pivot) {
    const double* z = chunk.z;
    const auto b = chunk.b;
    const size_t n = chunk.n;
    double below = 0, equal = 0, above = 0, under = -infinity, over = infinity;
#pragma omp simd reduction(+ : below, equal, above) reduction(max : under) reduction(min : over)
    for (size_t i = 0; i < n; ++i) {
        const double w = b[i];
        const double d = select(w > 0.0, frame.depth_of<Weights>(z[i]), pivot);
        below += select(d < pivot, w, 0.0);
        equal += select(d == pivot, w, 0.0);
        above += select(d > pivot, w, 0.0);
        const double lower = select(d < pivot, d, -infinity);
        const double upper = select(d > pivot, d, infinity);
        under = lower > under ? lower : under;
        over = upper < over ? upper : over;
    }
    return {below, equal, above, under, over};
}

template <class Weights>
PER_CHUNK WriteSums write_quantile(Chunk<Weights> chunk, const Ball& ball, const Search& search,
                                   double* out) {
    const Frame frame = ball.frame;
    const double pivot = search.quantile.pivot;
    double keep = search.quantile.keep, high, top;
    if (ball.divergence.family == Family::total_variation) {
        high = 1.0;
        top = 1.0 + ball.rho / frame.peak;
    } else {
        high = 1.0 / ball.divergence.parameter;
        top = pivot < 0.0 ? high : keep;
    }
    keep /= search.norm;
    high /= search.norm;
    top /= search.norm;
    const double* z = chunk.z;
    const auto b = chunk.b;
    const size_t n = chunk.n;
    double mass = 0, first = 0, divergence = 0, dual = 0;
#pragma omp simd reduction(+ : mass, first, divergence, dual)
    for (size_t i = 0; i < n; ++i) {
        const double w = frame.unit * b[i];
        const double d = frame.depth_of<Weights>(z[i]);
        double s = select(d == pivot, keep, high);
        s = select(d < pivot, 0.0, s);
        s = select(d == 0.0, top, s);
        const double p = w * s;
        out[i] = p;
        mass += p;
        first += p * d;
        divergence += std::fabs(p - w);
        dual += w * select(d > pivot, d - pivot, 0.0);
    }
    return {mass, first, 0.5 * divergence, dual};
}

// Moves the pivot towards the loss with the target mass below it (total variation) or above it
// (CVaR).
inline void advance_quantile(const Ball& ball, Search& search) {
    QuantileState& state = search.quantile;
    const PivotSums& sums = search.sums.pivot;
    const double unit = ball.frame.unit;
    const double below = sums.below * unit, equal = sums.equal * unit, above = sums.above * unit;
    const bool variation = ball.divergence.family == Family::total_variation;
    const double level = ball.divergence.parameter, rho = ball.rho;
    const double target = variation ? rho : 1.0 - level;
    bool too_high = variation ? below > rho : above + equal < level;
    bool too_low = variation ? below + equal < rho : above > level;
    // By rounding of the masses there may be no loss on the side to be searched, or only losses
    // that are known to be on the other side.
    if ((too_high && (sums.under == -infinity || sums.under < state.low)) ||
        (too_low && (sums.over == infinity || sums.over > state.high))) {
        too_high = too_low = false;
    }
    if (!too_high && !too_low) {
        double share = 0.0;
        if (equal > 0.0) {
            share = variation ? (below + equal - rho) / equal : (level - above) / (equal * level);
        }
        state.keep = std::clamp(share, 0.0, variation ? 1.0 : 1.0 / level);
        search.phase = Phase::write;
        return;
    }
    if (too_high) {
        state.high = sums.under;
        state.below_high = below;
    } else {
        state.low = sums.over;
        state.below_low = below + equal;
    }
    const double low = state.low, high = state.high;
    const int64_t turn = search.rounds % 4;
    double pivot;
    if (turn == 3) {  // halve the number of doubles in between, which ends after 64 halvings
        // 0 − x instead of −x: −0 and 0 have different bits.
        const uint64_t middle =
            (std::bit_cast<uint64_t>(0.0 - low) + std::bit_cast<uint64_t>(0.0 - high)) >> 1;
        pivot = -std::bit_cast<double>(middle);
    } else if (turn == 2 || state.below_high <= state.below_low) {
        pivot = low + 0.5 * (high - low);
    } else {
        const double part = (target - state.below_low) / (state.below_high - state.below_low);
        pivot = low + part * (high - low);
    }
    state.pivot = std::max(std::min(pivot, high), low);
}

}  // namespace drolearn::TARGET
