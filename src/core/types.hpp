// Plain data types shared by the bindings, the threads and all kernels.
//
// The worst case of losses z with base weights w is
//
//     R = max { Σ p z : Σ w φ(p/w) ≤ ρ, Σ p = 1, p ≥ 0 }.
//
// At the optimum p = w s(t) with t = (z − λ)/α. Here s is the inverse of φ', cut off at zero, and
// α and λ are the multipliers of the two constraints.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>

namespace drolearn {

using std::size_t;

inline constexpr double infinity = std::numeric_limits<double>::infinity();
inline constexpr double epsilon = std::numeric_limits<double>::epsilon();

// Losses per chunk. 4096 doubles fill the 32 KiB first-level cache of a core. Chunks do not depend
// on the number of threads and their sums are added in order, so any number of threads gives the
// same bits.
inline constexpr size_t chunk_size = 4096;

inline constexpr size_t chunk_count(size_t n) { return (n + chunk_size - 1) / chunk_size; }

// Smaller radii count as zero: the rounding of the weights alone then changes D by about 1e-8 ρ and
// more.
inline constexpr double smallest_radius = 1e-15;

enum class Status { ok, not_finite, not_solved, interrupted, callback_failed };

// A user's function on arrays: out[i] = f(x[i]). Returns false if it raised an exception.
struct ArrayFunction {
    bool (*apply)(void* self, const double* x, double* out, size_t n) = nullptr;
    void* self = nullptr;

    bool operator()(const double* x, double* out, size_t n) const { return apply(self, x, out, n); }
};

// Losses and base weights; b is null for equal weights.
struct Losses {
    const double* z = nullptr;
    const double* b = nullptr;
    size_t n = 0;

    Losses part(size_t start, size_t stop) const {
        return {z + start, b ? b + start : nullptr, stop - start};
    }
    Losses chunk(size_t k) const {
        const size_t start = k * chunk_size;
        return part(start, start + chunk_size < n ? start + chunk_size : n);
    }
};

// Equal base weights with the interface of an array.
struct EqualWeights {
    constexpr double operator[](size_t) const { return 1.0; }
    constexpr EqualWeights operator+(size_t) const { return {}; }
};

// A chunk of losses; Weights is EqualWeights or const double*. Kernels take it by value: the
// compiler then knows that writing to the output does not change these pointers.
template <class Weights>
struct Chunk {
    const double* z;
    Weights b;
    size_t n;
};

// Calls f with a chunk. Whatever f calls is compiled twice: for equal weights and for arrays.
template <class F>
auto with_weights(const Losses& losses, F f) {
    if (losses.b) return f(Chunk<const double*>{losses.z, losses.b, losses.n});
    return f(Chunk<EqualWeights>{losses.z, {}, losses.n});
}

// The multipliers of D ≤ ρ and of Σ p = 1.
struct Multipliers {
    double alpha = infinity;  // infinite: unknown
    double lam = 0;
};

// The result of a worst case; the weights are written to the caller's array.
struct Answer {
    Status status = Status::ok;
    double value = 0;
    double achieved = 0;  // D(P, B)
    Multipliers multipliers;
    double gap = 0;
    int64_t sweeps = 0;
};

// A loss of one example: a function of the margin y·f, of the residual f − y, or of the scores of
// all classes.
enum class LossKind {
    logistic,
    squared_hinge,
    smoothed_hinge,
    squared,
    huber,
    custom,
    multinomial
};

struct Loss {
    LossKind kind = LossKind::logistic;
    bool residual = false;
    double width = 1;  // of the quadratic part
    ArrayFunction value, slope;
};

// Rows start … stop − 1 of a draw: solved in a ball of this radius, added with this coefficient.
struct Block {
    size_t start, stop;
    double coefficient, radius;
};

// The groups of some rows, with their base shares; `of` is null if the ball reweights rows.
struct Grouping {
    const int64_t* of = nullptr;
    const double* shares = nullptr;
    size_t number = 0;
};

enum class DrawKind { full, fixed, growing, multilevel };

// How rows are drawn, see draws.hpp.
struct Plan {
    DrawKind kind = DrawKind::full;
    int64_t n = 0;
    int64_t size = 0;
    double rate = 1;  // factor by which `size` grows in each step
    double rho = 0, inflation = 0, delta = 0;
    double warm = 0;  // steps until corrections reach their full probability
    size_t levels = 0;
    const int64_t* sizes = nullptr;        // rows of a block at levels 0 … levels
    const int64_t* corrections = nullptr;  // rows of a correction at levels 0 … levels
    const double* cumulative = nullptr;    // P(correction at level ≤ k), k = 1 … levels
    const double* coefficients = nullptr;  // 1 / P(level k)
    Grouping groups;                       // of all rows
    const int64_t* members = nullptr;      // the rows to draw from, one group after the other
    const int64_t* starts = nullptr;       // where groups start in `members`, and its length
    const int64_t* group_sizes = nullptr;  // rows of each group in a block, level by level
};

// The C interface of NumPy's bit generators.
struct BitGenerator {
    void* state;
    uint64_t (*next_uint64)(void*);
    uint32_t (*next_uint32)(void*);
    double (*next_double)(void*);
    uint64_t (*next_raw)(void*);

    double uniform() const { return next_double(state); }
};

// A dense matrix in any memory order; strides count elements, not bytes.
template <class T>
struct Dense {
    using value_type = T;
    const T* data = nullptr;
    size_t n = 0, d = 0;
    ptrdiff_t row_stride = 0, column_stride = 0;
};

// A sparse matrix in CSR format.
template <class T, class I>
struct Sparse {
    using value_type = T;
    const T* data = nullptr;
    const I* indices = nullptr;
    const I* indptr = nullptr;
    size_t n = 0, d = 0;
};

}  // namespace drolearn
