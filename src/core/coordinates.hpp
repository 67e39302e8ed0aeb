// Coordinate descent on a quadratic function with an l1 penalty,
//
//     q(d) = g·d + ½ d·H d + Σ λⱼ |vⱼ + dⱼ|.
//
// The minimum in one coordinate is vⱼ + dⱼ = S(vⱼ + dⱼ − sⱼ/Hⱼⱼ, λⱼ/Hⱼⱼ), where s = g + H d is the
// slope of the quadratic part, and S(x, t) moves x towards 0 by t, and to 0 exactly where |x| ≤ t.
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

// Moves one coordinate to its minimum, updates the slope, and returns Hⱼⱼ δ² for its change δ. That
// is at least the decrease of q.
inline double move_coordinate(const Quadratic& q, size_t j, double* step, double* slope) {
    const double* row = q.hessian + j * q.size;
    const double curvature = row[j];
    if (!(curvature > 0.0)) return 0.0;
    const double now = q.start[j] + step[j], aim = now - slope[j] / curvature;
    const double threshold = q.penalty[j] / curvature;
    const double shrunk = std::max(std::abs(aim) - threshold, 0.0);
    const double target = std::copysign(shrunk, aim), change = target - now;
    if (change == 0.0) return 0.0;
    // v + d is exactly 0 for d = −v.
    step[j] = target == 0.0 ? -q.start[j] : step[j] + change;
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

}  // namespace drolearn
