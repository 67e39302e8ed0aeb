// Draws: rows without replacement, and blocks of them with signed coefficients.
//
// A correction of level k draws n_k rows and splits them into two halves of n_(k−1) = ⌊n_k/2⌋ rows:
//
//     Δ_k = ∇R̂(all) − ½ (∇R̂(left) + ∇R̂(right)),  drawn with probability q_k,  weighted by 1/q_k.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

#include "inner.hpp"
#include "target.hpp"
#include "types.hpp"

namespace drolearn::TARGET {

// ρ_M = ρ + c (1/M − 1/N)^((1−δ)/2).
inline double block_radius(const Plan& plan, int64_t size) {
    if (plan.inflation == 0.0 || size >= plan.n) return plan.rho;
    const double left = 1.0 / static_cast<double>(size) - 1.0 / static_cast<double>(plan.n);
    return plan.rho + plan.inflation * std::pow(left, 0.5 * (1.0 - plan.delta));
}

// The level of a draw, its number of rows, and the number of rows in its base block.
struct Choice {
    size_t level;
    int64_t count, base;
};

// Chooses what to draw at step t.
inline Choice choose(const BitGenerator& rng, const Plan& plan, double t) {
    if (plan.kind == DrawKind::full) return {0, plan.n, plan.n};
    if (plan.kind != DrawKind::multilevel) {
        int64_t size = plan.size;
        if (plan.kind == DrawKind::growing) {
            const double grown = static_cast<double>(plan.size) * std::pow(plan.rate, t);
            size = static_cast<int64_t>(std::min(grown, static_cast<double>(plan.n)));
        }
        return {0, size, size};
    }
    const int64_t base = plan.sizes[0];
    if (plan.levels > 0) {
        double u = rng.uniform();
        if (t < plan.warm) u *= plan.warm / std::max(t, 1.0);
        for (size_t k = 0; k < plan.levels; ++k) {
            if (u < plan.cumulative[k]) return {k + 1, base + plan.sizes[k + 1], base};
        }
    }
    return {0, base, base};
}

// Draws `count` of n rows without replacement in random order, in O(count) time.
//
// These are the first steps of a Fisher-Yates shuffle of 0 … n − 1. Only the changed places are
// stored, in a hash table; draws of at least n/8 rows use an array instead.
class Shuffle {
  public:
    void draw(const BitGenerator& rng, int64_t n, int64_t count, int64_t* out) {
        if (8 * count >= n) {
            places_.resize(static_cast<size_t>(n));
            for (int64_t i = 0; i < n; ++i) places_[i] = i;
            for (int64_t i = 0; i < count; ++i) {
                const int64_t j = pick(rng, i, n);
                out[i] = places_[j];
                places_[j] = places_[i];
            }
            return;
        }
        size_t capacity = 4;  // a power of two; the table stays at most half full
        while (capacity < 2 * static_cast<size_t>(count)) capacity *= 2;
        keys_.assign(capacity, -1);
        values_.resize(capacity);
        mask_ = capacity - 1;
        for (int64_t i = 0; i < count; ++i) {
            const int64_t j = pick(rng, i, n);
            const size_t at = slot(j), here = slot(i);
            out[i] = keys_[at] == j ? values_[at] : j;
            const int64_t moved = keys_[here] == i ? values_[here] : i;
            keys_[at] = j;
            values_[at] = moved;
        }
    }

  private:
    static int64_t pick(const BitGenerator& rng, int64_t i, int64_t n) {
        const auto j = i + static_cast<int64_t>(rng.uniform() * static_cast<double>(n - i));
        return std::min(j, n - 1);
    }

    // The slot of a key in a hash table with open addressing.
    size_t slot(int64_t key) const {
        size_t at = (static_cast<uint64_t>(key) * 0x9E3779B97F4A7C15u >> 32) & mask_;
        while (keys_[at] != key && keys_[at] >= 0) at = (at + 1) & mask_;
        return at;
    }

    std::vector<int64_t> places_, keys_, values_;
    size_t mask_ = 0;
};

// The blocks of a draw; at most four.
struct Blocks {
    std::array<Block, 4> each;
    size_t number = 0;

    void add(int64_t start, int64_t stop, double coefficient, double radius) {
        each[number++] = {static_cast<size_t>(start), static_cast<size_t>(stop), coefficient,
                          radius};
    }

    // Adds the blocks of a correction: all its rows, then its two halves. If the number of rows is
    // odd, the last row is in neither half.
    void add_correction(const Plan& plan, size_t level, int64_t start, double weight) {
        const int64_t size = plan.sizes[level], half = plan.sizes[level - 1];
        add(start, start + size, weight, block_radius(plan, size));
        add(start, start + half, -0.5 * weight, block_radius(plan, half));
        add(start + half, start + 2 * half, -0.5 * weight, block_radius(plan, half));
    }
};

// Draws the rows of a choice into `rows`.
inline Blocks place(const BitGenerator& rng, const Plan& plan, const Choice& choice,
                    Shuffle& shuffle, int64_t* rows) {
    Blocks blocks;
    if (plan.kind == DrawKind::full) {
        for (int64_t i = 0; i < choice.count; ++i) rows[i] = i;
    } else {
        shuffle.draw(rng, plan.n, choice.base, rows);
    }
    blocks.add(0, choice.base, 1.0, block_radius(plan, choice.base));
    if (choice.level > 0) {
        shuffle.draw(rng, plan.n, choice.count - choice.base, rows + choice.base);
        const double weight = plan.coefficients[choice.level - 1];
        blocks.add_correction(plan, choice.level, choice.base, weight);
    }
    return blocks;
}

// Draws the base block alone (level 0) or a correction alone, not divided by its probability.
inline Blocks place_level(const BitGenerator& rng, const Plan& plan, size_t level, int64_t* rows) {
    Blocks blocks;
    Shuffle shuffle;
    const int64_t size = plan.sizes[level];
    shuffle.draw(rng, plan.n, size, rows);
    if (level == 0) {
        blocks.add(0, size, 1.0, block_radius(plan, size));
    } else {
        blocks.add_correction(plan, level, 0, 1.0);
    }
    return blocks;
}

// Σ over blocks of coefficient × worst-case weights; `scratch` has the size of the largest block.
//
// Blocks whose base weights are all zero count as zero. The estimator stays unbiased because every
// level treats such a block in the same way.
inline Status signed_weights(const Divergence& divergence, const Losses& losses,
                             const Block* blocks, size_t number, double* out, double* scratch,
                             Workers& workers) {
    std::fill(out, out + losses.n, 0.0);
    for (size_t k = 0; k < number; ++k) {
        const Block& block = blocks[k];
        const Losses part = losses.part(block.start, block.stop);
        const auto is_zero = [](double b) { return b == 0.0; };
        if (part.b && std::all_of(part.b, part.b + part.n, is_zero)) continue;
        const Answer answer = solve(divergence, block.radius, part, scratch, workers);
        if (answer.status != Status::ok) return answer.status;
        for (size_t i = 0; i < part.n; ++i) out[block.start + i] += block.coefficient * scratch[i];
    }
    return Status::ok;
}

}  // namespace drolearn::TARGET
