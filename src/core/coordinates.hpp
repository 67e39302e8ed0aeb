// Coordinate descent on a quadratic function with an l1 penalty,
//
//     q(d) = g·d + ½ d·H d + Σ λⱼ |vⱼ + dⱼ|.
//
// The minimum in one coordinate is vⱼ + dⱼ = S(vⱼ + dⱼ − sⱼ/Hⱼⱼ, λⱼ/Hⱼⱼ), where s = g + H d is the
// slope of the quadratic part, and S(x, t) moves x towards 0 by t, and to 0 exactly where |x| ≤ t.
//
// H is either a matrix, or that of a loss of sparse rows,
//
//     H = S Xᵀ diag(h) X S + diag(quadratic) + U K Uᵀ,
//
// with scales S and a few columns U. A step in one coordinate then reads one column of X.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>

#include "types.hpp"

namespace drolearn {

// The numbers of one quadratic function; the matrix is symmetric.
struct Quadratic {
    const double* hessian;
    const double* penalty;
    const double* start;
    size_t size;
};

// Moves dⱼ, given as `step`, to its minimum for the slope and curvature there; returns the change.
inline double shrink(double slope, double curvature, double penalty, double start, double& step) {
    const double now = start + step, aim = now - slope / curvature;
    const double shrunk = std::max(std::abs(aim) - penalty / curvature, 0.0);
    const double target = std::copysign(shrunk, aim), change = target - now;
    // v + d is exactly 0 for d = −v.
    if (change != 0.0) step = target == 0.0 ? -start : step + change;
    return change;
}

// Moves one coordinate to its minimum, updates the slope, and returns Hⱼⱼ δ² for its change δ. That
// is at least the decrease of q.
inline double move_coordinate(const Quadratic& q, size_t j, double* step, double* slope) {
    const double* row = q.hessian + j * q.size;
    const double curvature = row[j];
    if (!(curvature > 0.0)) return 0.0;
    const double change = shrink(slope[j], curvature, q.penalty[j], q.start[j], step[j]);
    if (change == 0.0) return 0.0;
#pragma omp simd
    for (size_t k = 0; k < q.size; ++k) slope[k] += change * row[k];
    return curvature * change * change;
}

// Sweeps over all coordinates until one of them lowers q by at most `tolerance`, but at most
// `sweeps` times; `going` is asked after each. Returns the number of sweeps.
template <class Going>
size_t coordinate_descent(const Quadratic& q, double* step, double* slope, size_t sweeps,
                          double tolerance, Going going) {
    for (size_t sweep = 1; sweep <= sweeps; ++sweep) {
        double decrease = 0.0;
        for (size_t j = 0; j < q.size; ++j) decrease += move_coordinate(q, j, step, slope);
        if (!(decrease > tolerance) || !going()) return sweep;
    }
    return sweeps;
}

// The numbers of one quadratic function of sparse rows. The last coordinate is the intercept, which
// has no column.
struct SparseQuadratic {
    const double* weights;    // h
    const double* scale;      // S
    const double* curvature;  // the diagonal of H
    const double* quadratic;
    const double* sides;  // U, one row for each coordinate
    const double* inner;  // K, symmetric
    size_t rank;
    const double* gradient;
    const double* penalty;
    const double* start;
};

// The step d, and what the slope g + H d is made of: bent = diag(h) X S d and sums = K Uᵀ d.
struct SparseStep {
    double* step;
    double* bent;
    double* sums;
};

// Σ x · u over one column; `columns` holds the columns as rows.
template <class T, class I>
double column_product(const Sparse<T, I>& columns, size_t j, const double* u) {
    const auto last = static_cast<size_t>(columns.indptr[j + 1]);
    auto a = static_cast<size_t>(columns.indptr[j]);
    double even = 0.0, odd = 0.0;  // two sums: additions to one would wait for each other
    for (; a + 1 < last; a += 2) {
        even += static_cast<double>(columns.data[a]) * u[static_cast<size_t>(columns.indices[a])];
        odd += static_cast<double>(columns.data[a + 1]) *
               u[static_cast<size_t>(columns.indices[a + 1])];
    }
    if (a < last) {
        even += static_cast<double>(columns.data[a]) * u[static_cast<size_t>(columns.indices[a])];
    }
    return even + odd;
}

// The same as for a matrix.
template <class T, class I>
double move_coordinate(const Sparse<T, I>& columns, const SparseQuadratic& q, size_t j,
                       const SparseStep& at) {
    const double curvature = q.curvature[j];
    if (!(curvature > 0.0)) return 0.0;
    const double* sides = q.sides + j * q.rank;
    double slope = q.gradient[j] + q.quadratic[j] * at.step[j];
    for (size_t k = 0; k < q.rank; ++k) slope += sides[k] * at.sums[k];
    const bool column = j < columns.n;
    if (column) slope += q.scale[j] * column_product(columns, j, at.bent);
    const double change = shrink(slope, curvature, q.penalty[j], q.start[j], at.step[j]);
    if (change == 0.0) return 0.0;
    for (size_t k = 0; k < q.rank; ++k) {
        for (size_t l = 0; l < q.rank; ++l) {
            at.sums[k] += change * q.inner[k * q.rank + l] * sides[l];
        }
    }
    if (column) {
        const double factor = change * q.scale[j];
        const auto last = static_cast<size_t>(columns.indptr[j + 1]);
        for (auto a = static_cast<size_t>(columns.indptr[j]); a < last; ++a) {
            const auto i = static_cast<size_t>(columns.indices[a]);
            at.bent[i] += factor * q.weights[i] * static_cast<double>(columns.data[a]);
        }
    }
    return curvature * change * change;
}

// One sweep over some coordinates; Σ Hⱼⱼ δ², or −1 if interrupted.
template <class T, class I, class Going>
double sweep_columns(const Sparse<T, I>& columns, const SparseQuadratic& q,
                     const int64_t* coordinates, size_t count, const SparseStep& at, Going going) {
    double decrease = 0.0;
    for (size_t k = 0; k < count; ++k) {
        decrease += move_coordinate(columns, q, static_cast<size_t>(coordinates[k]), at);
        if (k % 256 == 255 && !going()) return -1.0;
    }
    return decrease;
}

}  // namespace drolearn
