// Draws: rows without replacement, and blocks of them with signed coefficients.
//
// A correction of level k draws n_k rows and splits them into two halves of n_(k−1) = ⌊n_k/2⌋ rows:
//
//     Δ_k = ∇R̂(all) − ½ (∇R̂(left) + ∇R̂(right)),  drawn with probability q_k,  weighted by 1/q_k.
//
// With groups, n_k rows are drawn from each group separately, with n_(k−1) = max(1, ⌊n_k/2⌋). If
// n_k is 1, the row is in both halves. The worst case of a block reweights the means of its groups.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <span>
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
            if (u < plan.cumulative[k]) return {k + 1, base + plan.corrections[k + 1], base};
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

    std::span<const Block> all() const { return {each.data(), number}; }

    void add(int64_t start, int64_t stop, double coefficient, double radius) {
        each[number++] = {static_cast<size_t>(start), static_cast<size_t>(stop), coefficient,
                          radius};
    }

    // Adds the blocks of a correction: all its rows, then its two halves. Rows that are left over
    // by odd numbers come last and are in neither half.
    void add_correction(const Plan& plan, size_t level, int64_t start, double weight) {
        const int64_t size = plan.sizes[level], half = plan.sizes[level - 1];
        add(start, start + plan.corrections[level], weight, block_radius(plan, size));
        add(start, start + half, -0.5 * weight, block_radius(plan, half));
        add(start + half, start + 2 * half, -0.5 * weight, block_radius(plan, half));
    }
};

// Draws the rows of blocks and corrections.
class Drawer {
  public:
    explicit Drawer(const Plan& plan) : plan_(plan) {}

    // Draws a block of `size` rows; with groups, it has the rows of level 0.
    void block(const BitGenerator& rng, int64_t size, int64_t* rows) {
        if (!plan_.groups.of) return shuffle_.draw(rng, plan_.n, size, rows);
        for (size_t g = 0; g < plan_.groups.number; ++g) {
            const int64_t count = plan_.group_sizes[g];
            from_group(rng, g, count, rows);
            rows += count;
        }
    }

    // Draws a correction: the left half, the right half, and what is left over. The order of rows
    // is random, so any split of them is.
    void correction(const BitGenerator& rng, size_t level, int64_t* rows) {
        if (!plan_.groups.of) return shuffle_.draw(rng, plan_.n, plan_.corrections[level], rows);
        const size_t number = plan_.groups.number;
        const int64_t* sizes = plan_.group_sizes + level * number;
        int64_t* left = rows;
        int64_t* right = left + plan_.sizes[level - 1];
        int64_t* rest = right + plan_.sizes[level - 1];
        for (size_t g = 0; g < number; ++g) {
            const int64_t size = sizes[g], half = plan_.group_sizes[(level - 1) * number + g];
            group_rows_.resize(static_cast<size_t>(size));
            from_group(rng, g, size, group_rows_.data());
            const int64_t* drawn = group_rows_.data();
            left = std::copy(drawn, drawn + half, left);
            right = std::copy(drawn + (size - half), drawn + size, right);
            rest = std::copy(drawn + half, drawn + std::max(half, size - half), rest);
        }
    }

  private:
    void from_group(const BitGenerator& rng, size_t group, int64_t count, int64_t* rows) {
        const int64_t start = plan_.starts[group];
        shuffle_.draw(rng, plan_.starts[group + 1] - start, count, rows);
        for (int64_t i = 0; i < count; ++i) rows[i] = plan_.members[start + rows[i]];
    }

    const Plan& plan_;
    Shuffle shuffle_;
    std::vector<int64_t> group_rows_;
};

// Draws the rows of a choice into `rows`.
inline Blocks place(const BitGenerator& rng, const Plan& plan, const Choice& choice, Drawer& drawer,
                    int64_t* rows) {
    Blocks blocks;
    if (plan.kind == DrawKind::full) {
        for (int64_t i = 0; i < choice.count; ++i) rows[i] = i;
    } else {
        drawer.block(rng, choice.base, rows);
    }
    blocks.add(0, choice.base, 1.0, block_radius(plan, choice.base));
    if (choice.level > 0) {
        drawer.correction(rng, choice.level, rows + choice.base);
        const double weight = plan.coefficients[choice.level - 1];
        blocks.add_correction(plan, choice.level, choice.base, weight);
    }
    return blocks;
}

// Draws the base block alone (level 0) or a correction alone, not divided by its probability.
inline Blocks place_level(const BitGenerator& rng, const Plan& plan, size_t level, int64_t* rows) {
    Blocks blocks;
    Drawer drawer(plan);
    if (level == 0) {
        drawer.block(rng, plan.sizes[0], rows);
        blocks.add(0, plan.sizes[0], 1.0, block_radius(plan, plan.sizes[0]));
    } else {
        drawer.correction(rng, level, rows);
        blocks.add_correction(plan, level, 0, 1.0);
    }
    return blocks;
}

// The worst case of the mean losses L of groups, and the weights q b / Σ b of rows that correspond
// to it. Groups without weight have none in the worst case. `scratch` has 4 numbers for each group.
inline Status group_weights(const Divergence& divergence, double radius, const Losses& losses,
                            const Grouping& groups, double* out, double* scratch,
                            Workers& workers) {
    const size_t number = groups.number;
    double *mean = scratch, *mass = mean + number, *share = mass + number, *q = share + number;
    std::fill(scratch, scratch + 2 * number, 0.0);
    for (size_t i = 0; i < losses.n; ++i) {
        const double b = losses.b ? losses.b[i] : 1.0;
        if (b == 0.0) continue;  // its loss may be infinite
        mass[groups.of[i]] += b;
        mean[groups.of[i]] += b * losses.z[i];
    }
    for (size_t g = 0; g < number; ++g) {
        share[g] = mass[g] > 0.0 ? groups.shares[g] : 0.0;
        if (mass[g] > 0.0) mean[g] /= mass[g];
    }
    const Answer answer = solve(divergence, radius, {mean, share, number}, q, workers);
    if (answer.status != Status::ok) return answer.status;
    for (size_t g = 0; g < number; ++g) q[g] = mass[g] > 0.0 ? q[g] / mass[g] : 0.0;
    for (size_t i = 0; i < losses.n; ++i) {
        out[i] = q[groups.of[i]] * (losses.b ? losses.b[i] : 1.0);
    }
    return Status::ok;
}

// The length of the scratch of `signed_weights`.
inline size_t scratch_size(size_t rows, const Grouping& groups) {
    return groups.of ? rows + 4 * groups.number : rows;
}

// Σ over blocks of coefficient × worst-case weights; see `scratch_size`.
//
// Blocks whose base weights are all zero count as zero. The estimator stays unbiased because every
// level treats such a block in the same way.
inline Status signed_weights(const Divergence& divergence, const Losses& losses,
                             const Grouping& groups, std::span<const Block> blocks, double* out,
                             double* scratch, Workers& workers) {
    std::fill(out, out + losses.n, 0.0);
    for (const Block& block : blocks) {
        const Losses part = losses.part(block.start, block.stop);
        const auto is_zero = [](double b) { return b == 0.0; };
        if (part.b && std::all_of(part.b, part.b + part.n, is_zero)) continue;
        Status status = Status::ok;
        if (groups.of) {
            const Grouping inside{groups.of + block.start, groups.shares, groups.number};
            status = group_weights(divergence, block.radius, part, inside, scratch,
                                   scratch + part.n, workers);
        } else {
            status = solve(divergence, block.radius, part, scratch, workers).status;
        }
        if (status != Status::ok) return status;
        for (size_t i = 0; i < part.n; ++i) out[block.start + i] += block.coefficient * scratch[i];
    }
    return Status::ok;
}

}  // namespace drolearn::TARGET
