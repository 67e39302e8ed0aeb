// The plain values that the bindings, the threads and all kernels share. No code of weight.
//
// The worst case of losses z with base weights w is
//
//     R = max { Σ p z : Σ w φ(p/w) ≤ ρ, Σ p = 1, p ≥ 0 }.
//
// Its optimum has p = w s(t), t = (z − λ)/α, where s is the inverse of φ' (cut off at zero) and
// α, λ are the multipliers of the two constraints.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>

namespace drolearn {

using std::size_t;

inline constexpr double infinity = std::numeric_limits<double>::infinity();
inline constexpr double epsilon = std::numeric_limits<double>::epsilon();

// Losses per chunk. 4096 float64 fill the 32 KiB first-level cache of a core. The chunks do not
// depend on the number of threads, and their sums are joined in order: equal bits for any number.
inline constexpr size_t chunk_size = 4096;

inline constexpr size_t chunk_count(size_t n) { return (n + chunk_size - 1) / chunk_size; }

// Radii below this count as zero: D of weights so close to the base is rounding.
inline constexpr double smallest_radius = 1e-15;

enum class Status { ok, not_finite, not_solved, interrupted, callback_failed };

// out[i] = f(x[i]) for a function that the user has given; false if it raised.
struct Function {
    bool (*apply)(void* self, const double* x, double* out, size_t n) = nullptr;
    void* self = nullptr;

    bool operator()(const double* x, double* out, size_t n) const { return apply(self, x, out, n); }
};

// Losses, and base weights or a null pointer for equal ones.
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

// Equal base weights, for loops that are written for both kinds.
struct EqualWeights {
    constexpr double operator[](size_t) const { return 1.0; }
};

// A chunk of losses with base weights of one kind. Kernels take it by value: pointers in registers
// cannot be changed by what a loop writes.
template <class Weights>
struct Chunk {
    const double* z;
    Weights b;
    size_t n;
};

// Calls f with a chunk: what f calls is compiled for equal weights and for others.
template <class F>
auto with_weights(const Losses& losses, F f) {
    if (losses.b) return f(Chunk<const double*>{losses.z, losses.b, losses.n});
    return f(Chunk<EqualWeights>{losses.z, {}, losses.n});
}

// The multipliers of the ball and of Σ p = 1.
struct Multipliers {
    double alpha = infinity;  // infinite: nothing is known
    double lam = 0;
};

// A worst case, apart from its weights, which are written in place.
struct Answer {
    Status status = Status::ok;
    double value = 0;
    double achieved = 0;  // D(P, B)
    Multipliers at;
    double gap = 0;
    int64_t sweeps = 0;
};

// A loss of one example: a function of the margin y·f or of the residual f − y, or of the
// scores of all classes.
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
    double width = 1;  // where the parabola ends
    Function value, slope;
};

// Signed part of a draw: rows start to stop of it, solved in a ball of this radius.
struct Block {
    size_t start, stop;
    double coefficient, radius;
};

enum class DrawKind { full, fixed, growing, multilevel };

// A way to draw rows, see draws.hpp.
struct Plan {
    DrawKind kind = DrawKind::full;
    int64_t n = 0;
    int64_t size = 0;
    double rate = 1;  // growth of `size` for each step
    double rho = 0, inflation = 0, delta = 0;
    double warm = 0;  // steps over which corrections become as frequent as they should be
    size_t levels = 0;
    const int64_t* sizes = nullptr;        // rows of a block at levels 0 … levels
    const double* cumulative = nullptr;    // P(correction at level ≤ k), k = 1 … levels
    const double* coefficients = nullptr;  // 1 / P(level k)
};

// NumPy's bit generators, as their C interface declares them.
struct BitGenerator {
    void* state;
    uint64_t (*next_uint64)(void*);
    uint32_t (*next_uint32)(void*);
    double (*next_double)(void*);
    uint64_t (*next_raw)(void*);

    double uniform() const { return next_double(state); }
};

// A dense matrix in any order; strides count numbers, not bytes.
template <class T>
struct Dense {
    using value_type = T;
    const T* data = nullptr;
    size_t n = 0, d = 0;
    ptrdiff_t row_stride = 0, column_stride = 0;
};

// Compressed sparse rows.
template <class T, class I>
struct Sparse {
    using value_type = T;
    const T* data = nullptr;
    const I* indices = nullptr;
    const I* indptr = nullptr;
    size_t n = 0, d = 0;
};

}  // namespace drolearn
