// Types shared by the dense and the sparse model of a descent.
#pragma once

#include <algorithm>

#include "rows.hpp"
#include "types.hpp"

namespace drolearn {

// The coefficients θ, m rows of d + 1, and the weighted sum of the iterates.
struct Model {
    double* theta = nullptr;
    double* average = nullptr;
    size_t m = 1;
};

// Sparse columns may have this many different scales, each zero or a power of two.
inline constexpr size_t most_scales = 256;

// The numbers of drawn rows.
struct DrawnRows {
    const int64_t* rows = nullptr;
    size_t count = 0;

    size_t operator[](size_t i) const { return static_cast<size_t>(rows[i]); }
};

// Drawn rows, and u = signed weight × slope of each row's loss in its scores.
struct Part {
    DrawnRows drawn;
    const double* u = nullptr;
};

// The two parts of a draw.
struct Parts {
    Part base, correction;
};

namespace TARGET {

// Rows are prefetched this many rows before they are scored: random access is slow.
inline constexpr size_t prefetch_distance = 4;

template <class Rows>
void prefetch_rows(const Rows& X, const DrawnRows& drawn, size_t first, size_t last) {
    for (size_t i = first; i < std::min(last, drawn.count); ++i) prefetch_row(X, drawn[i]);
}

}  // namespace TARGET
}  // namespace drolearn
