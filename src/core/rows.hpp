// Passes over rows of data: dense in any memory order or CSR, float32 or float64.
//
// θ has one row of d + 1 numbers for each of m scores; the last number is the intercept.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <vector>

#include "target.hpp"
#include "threads.hpp"
#include "types.hpp"

#if defined(_MSC_VER) && !defined(__clang__)
#include <xmmintrin.h>
#endif

namespace drolearn {

// Sum, sum of squares and largest absolute value of each column.
struct ColumnMoments {
    double* total = nullptr;
    double* square = nullptr;
    double* largest = nullptr;
};

// A list of row numbers, and the base weights of all rows (null for equal weights).
struct SomeRows {
    const int64_t* rows = nullptr;
    size_t count = 0;
    const double* base = nullptr;

    double weight(size_t k) const { return base ? base[rows[k]] : 1.0; }
};

// Means and scales of the columns; the last scale is that of the intercept.
struct Columns {
    const double* mean = nullptr;
    const double* scale = nullptr;
};

// u = p · slope: row weights p (null for ones) and slopes, m per row.
struct RowFactors {
    const double* p = nullptr;
    const double* slope = nullptr;
    size_t m = 1;
};

namespace TARGET {

// Prefetches the cache line at an address.
inline void prefetch(const void* address) {
#if defined(__GNUC__) || defined(__clang__)
    __builtin_prefetch(address);
#else
    _mm_prefetch(static_cast<const char*>(address), _MM_HINT_T0);
#endif
}

inline void prefetch_range(const void* start, size_t bytes) {
    const char* at = static_cast<const char*>(start);
    for (size_t k = 0; k < bytes; k += 64) prefetch(at + k);
}

// Whether columns are closer together in memory than rows.
template <class T>
bool by_columns(const Dense<T>& X) {
    return X.column_stride != 1 && std::abs(X.row_stride) < std::abs(X.column_stride);
}

template <class T>
void prefetch_row(const Dense<T>& X, size_t i) {
    if (X.column_stride != 1) return;
    prefetch_range(X.data + static_cast<ptrdiff_t>(i) * X.row_stride,
                   std::min(X.d * sizeof(T), size_t{256}));
}

template <class T, class I>
void prefetch_row(const Sparse<T, I>& X, size_t i) {
    const auto first = static_cast<size_t>(X.indptr[i]);
    const size_t count = std::min(static_cast<size_t>(X.indptr[i + 1]) - first, size_t{256});
    prefetch_range(X.indices + first, count * sizeof(I));
    prefetch_range(X.data + first, count * sizeof(T));
}

// -- one row ---------------------------------------------------------------------------------

// x·w + c of row i.
template <class T>
double row_score(const Dense<T>& X, size_t i, const double* theta) {
    const T* x = X.data + static_cast<ptrdiff_t>(i) * X.row_stride;
    double total = 0.0;
    if (X.column_stride == 1) {
#pragma omp simd reduction(+ : total)
        for (size_t j = 0; j < X.d; ++j) total += static_cast<double>(x[j]) * theta[j];
    } else {
        for (size_t j = 0; j < X.d; ++j) {
            total += static_cast<double>(x[static_cast<ptrdiff_t>(j) * X.column_stride]) * theta[j];
        }
    }
    return total + theta[X.d];
}

template <class T, class I>
double row_score(const Sparse<T, I>& X, size_t i, const double* theta) {
    const auto first = static_cast<size_t>(X.indptr[i]),
               last = static_cast<size_t>(X.indptr[i + 1]);
    double even = 0.0, odd = 0.0;  // two sums: additions to one would wait for each other
    size_t a = first;
    for (; a + 1 < last; a += 2) {
        even += static_cast<double>(X.data[a]) * theta[static_cast<size_t>(X.indices[a])];
        odd += static_cast<double>(X.data[a + 1]) * theta[static_cast<size_t>(X.indices[a + 1])];
    }
    if (a < last) even += static_cast<double>(X.data[a]) * theta[static_cast<size_t>(X.indices[a])];
    return (even + odd) + theta[X.d];
}

// g += u (x, 1) with row i.
template <class T>
void add_row(const Dense<T>& X, size_t i, double u, double* g) {
    const T* x = X.data + static_cast<ptrdiff_t>(i) * X.row_stride;
    if (X.column_stride == 1) {
#pragma omp simd
        for (size_t j = 0; j < X.d; ++j) g[j] += u * static_cast<double>(x[j]);
    } else {
        for (size_t j = 0; j < X.d; ++j) {
            g[j] += u * static_cast<double>(x[static_cast<ptrdiff_t>(j) * X.column_stride]);
        }
    }
    g[X.d] += u;
}

template <class T, class I>
void add_row(const Sparse<T, I>& X, size_t i, double u, double* g) {
    const auto first = static_cast<size_t>(X.indptr[i]),
               last = static_cast<size_t>(X.indptr[i + 1]);
    for (size_t a = first; a < last; ++a) {
        g[static_cast<size_t>(X.indices[a])] += u * static_cast<double>(X.data[a]);
    }
    g[X.d] += u;
}

// Calls f(column, value) for each stored number of row i.
template <class T, class F>
PER_NUMBER void each_number(const Dense<T>& X, size_t i, F f) {
    const T* x = X.data + static_cast<ptrdiff_t>(i) * X.row_stride;
    for (size_t j = 0; j < X.d; ++j) {
        f(j, static_cast<double>(x[static_cast<ptrdiff_t>(j) * X.column_stride]));
    }
}

template <class T, class I, class F>
PER_NUMBER void each_number(const Sparse<T, I>& X, size_t i, F f) {
    const auto first = static_cast<size_t>(X.indptr[i]),
               last = static_cast<size_t>(X.indptr[i + 1]);
    for (size_t a = first; a < last; ++a) {
        f(static_cast<size_t>(X.indices[a]), static_cast<double>(X.data[a]));
    }
}

// g += Σ v x over up to four rows. Each element of g is loaded and stored once for all four.
template <class T>
void add_four(const T* const x[4], const double v[4], size_t count, size_t d, double* g) {
    if (count == 4) {
        const T *a = x[0], *b = x[1], *c = x[2], *e = x[3];
        const double v0 = v[0], v1 = v[1], v2 = v[2], v3 = v[3];
#pragma omp simd
        for (size_t j = 0; j < d; ++j) {
            g[j] += (v0 * static_cast<double>(a[j]) + v1 * static_cast<double>(b[j])) +
                    (v2 * static_cast<double>(c[j]) + v3 * static_cast<double>(e[j]));
        }
        return;
    }
    for (size_t k = 0; k < count; ++k) {
        const T* a = x[k];
        const double factor = v[k];
#pragma omp simd
        for (size_t j = 0; j < d; ++j) g[j] += factor * static_cast<double>(a[j]);
    }
}

// g += Σ u (x, 1) over rows row(0) … row(count − 1). Rows with u = 0 are skipped. The u of row i is
// u[i · stride].
template <class T, class Row>
void add_rows(const Dense<T>& X, size_t count, Row row, const double* u, size_t stride, double* g) {
    const T* x[4];
    double v[4], total = 0.0;
    size_t waiting = 0;
    for (size_t i = 0; i < count; ++i) {
        const double factor = u[i * stride];
        if (factor == 0.0) continue;
        if (X.column_stride != 1) {
            add_row(X, row(i), factor, g);
            continue;
        }
        x[waiting] = X.data + static_cast<ptrdiff_t>(row(i)) * X.row_stride;
        v[waiting] = factor;
        total += factor;
        if (++waiting < 4) continue;
        add_four(x, v, 4, X.d, g);
        waiting = 0;
    }
    add_four(x, v, waiting, X.d, g);
    g[X.d] += total;
}

// -- scores ------------------------------------------------------------------------------------

// Scores of four rows at once. Each element of θ is loaded once for all four.
template <class T>
void four_scores(const T* const x[4], size_t d, const double* theta, double out[4]) {
    const T *a = x[0], *b = x[1], *c = x[2], *e = x[3];
    double s0 = 0.0, s1 = 0.0, s2 = 0.0, s3 = 0.0;
#pragma omp simd reduction(+ : s0, s1, s2, s3)
    for (size_t j = 0; j < d; ++j) {
        const double w = theta[j];
        s0 += static_cast<double>(a[j]) * w;
        s1 += static_cast<double>(b[j]) * w;
        s2 += static_cast<double>(c[j]) * w;
        s3 += static_cast<double>(e[j]) * w;
    }
    out[0] = s0 + theta[d];
    out[1] = s1 + theta[d];
    out[2] = s2 + theta[d];
    out[3] = s3 + theta[d];
}

// f = X θ for rows row(0) … row(count − 1), m scores per row, four rows at a time.
template <class T, class Row>
void scores_by_four(const Dense<T>& X, const double* theta, size_t m, size_t count, Row row,
                    double* f) {
    const size_t width = X.d + 1;
    size_t i = 0;
    for (; i + 4 <= count; i += 4) {
        const T* x[4];
        for (size_t k = 0; k < 4; ++k) {
            x[k] = X.data + static_cast<ptrdiff_t>(row(i + k)) * X.row_stride;
        }
        for (size_t c = 0; c < m; ++c) {
            double four[4];
            four_scores(x, X.d, theta + c * width, four);
            for (size_t k = 0; k < 4; ++k) f[(i + k) * m + c] = four[k];
        }
    }
    for (; i < count; ++i) {
        for (size_t c = 0; c < m; ++c) f[i * m + c] = row_score(X, row(i), theta + c * width);
    }
}

// f = X θ for rows first … last − 1, m scores per row; f[0] belongs to row `first`.
template <class T>
void scores_of_rows(const Dense<T>& X, const double* theta, size_t m, size_t first, size_t last,
                    double* f) {
    const size_t width = X.d + 1, count = last - first;
    if (X.column_stride == 1) {
        scores_by_four(X, theta, m, count, [first](size_t i) { return first + i; }, f);
        return;
    }
    if (!by_columns(X) || X.row_stride != 1) {
        for (size_t i = 0; i < count; ++i) {
            for (size_t c = 0; c < m; ++c)
                f[i * m + c] = row_score(X, first + i, theta + c * width);
        }
        return;
    }
    for (size_t c = 0; c < m; ++c) {  // column by column, the order in memory
        const double* w = theta + c * width;
        for (size_t i = 0; i < count; ++i) f[i * m + c] = w[X.d];
        for (size_t j = 0; j < X.d; ++j) {
            const T* x = X.data + static_cast<ptrdiff_t>(j) * X.column_stride + first;
            const double coefficient = w[j];
            if (m == 1) {
#pragma omp simd
                for (size_t i = 0; i < count; ++i) f[i] += coefficient * static_cast<double>(x[i]);
            } else {
                for (size_t i = 0; i < count; ++i) {
                    f[i * m + c] += coefficient * static_cast<double>(x[i]);
                }
            }
        }
    }
}

template <class T, class I>
void scores_of_rows(const Sparse<T, I>& X, const double* theta, size_t m, size_t first, size_t last,
                    double* f) {
    for (size_t i = first; i < last; ++i) {
        for (size_t c = 0; c < m; ++c) {
            f[(i - first) * m + c] = row_score(X, i, theta + c * (X.d + 1));
        }
    }
}

// Rows per task.
inline constexpr size_t score_rows = 2048;

// f = X θ for all rows; false if interrupted.
template <class Rows>
bool scores(const Rows& X, const double* theta, size_t m, double* f, Workers& workers) {
    return workers.run((X.n + score_rows - 1) / score_rows, [&](size_t task) {
        const size_t first = task * score_rows, last = std::min(first + score_rows, X.n);
        scores_of_rows(X, theta, m, first, last, f + first * m);
    });
}

// -- gradients -----------------------------------------------------------------------------------

// g += Σ u (x, 1) over rows first … last − 1, for one score; u[0] belongs to row `first`.
template <class T>
void add_rows(const Dense<T>& X, size_t first, size_t last, const double* u, double* g) {
    const size_t d = X.d, count = last - first;
    if (by_columns(X) && X.row_stride == 1) {
        for (size_t j = 0; j < d; ++j) {
            const T* x = X.data + static_cast<ptrdiff_t>(j) * X.column_stride + first;
            double total = 0.0;
#pragma omp simd reduction(+ : total)
            for (size_t i = 0; i < count; ++i) total += static_cast<double>(x[i]) * u[i];
            g[j] += total;
        }
        double total = 0.0;
        for (size_t i = 0; i < count; ++i) total += u[i];
        g[d] += total;
        return;
    }
    add_rows(X, count, [first](size_t i) { return first + i; }, u, 1, g);
}

template <class T, class I>
void add_rows(const Sparse<T, I>& X, size_t first, size_t last, const double* u, double* g) {
    for (size_t i = first; i < last; ++i) {
        if (u[i - first] != 0.0) add_row(X, i, u[i - first], g);
    }
}

// Sums over all rows are computed in this many slabs and added in order, so any number of threads
// gives the same bits. Below `slabs_from` numbers there is one slab.
inline constexpr size_t slab_count = 16;
inline constexpr size_t slabs_from = size_t{1} << 18;

// out = Xᵀu, m rows of d + 1 numbers with the intercept last; false if interrupted.
template <class Rows>
bool gradient(const Rows& X, size_t numbers, const RowFactors& factors, double* out,
              Workers& workers) {
    const size_t m = factors.m, size = m * (X.d + 1);
    const size_t slabs = numbers * m >= slabs_from ? slab_count : 1;
    std::vector<double> parts(slabs > 1 ? slabs * size : 0);
    std::fill(out, out + size, 0.0);
    const bool finished = workers.run(slabs, [&](size_t slab) {
        double* g = slabs > 1 ? parts.data() + slab * size : out;
        double u[chunk_size];
        const size_t end = X.n * (slab + 1) / slabs;
        for (size_t first = X.n * slab / slabs; first < end; first += chunk_size) {
            const size_t last = std::min(first + chunk_size, end);
            for (size_t c = 0; c < m; ++c) {
                for (size_t i = first; i < last; ++i) {
                    const double slope = factors.slope[i * m + c];
                    u[i - first] = factors.p ? factors.p[i] * slope : slope;
                }
                add_rows(X, first, last, u, g + c * (X.d + 1));
            }
        }
    });
    for (size_t slab = 0; slabs > 1 && slab < slabs; ++slab) {
        for (size_t j = 0; j < size; ++j) out[j] += parts[slab * size + j];
    }
    return finished;
}

// -- columns ---------------------------------------------------------------------------------------

// Adds the moments of the columns about `mean`, or about zero if that is null. Moments of
// successive columns are `stride` numbers apart.
template <size_t stride, class Rows>
bool add_moments(const Rows& X, const SomeRows& some, const double* mean, const ColumnMoments& out,
                 Workers& workers) {
    for (size_t k = 0; k < some.count; ++k) {
        if (k % score_rows == 0 && !workers.poll()) return false;
        const double b = some.weight(k);
        if (b == 0.0) continue;
        each_number(X, static_cast<size_t>(some.rows[k]), [&](size_t j, double x) {
            if (mean) x -= mean[j];
            const size_t at = j * stride;
            out.total[at] += b * x;
            out.square[at] += b * x * x;
            out.largest[at] = std::max(out.largest[at], std::fabs(x));
        });
    }
    return true;
}

template <class T>
bool column_moments(const Dense<T>& X, const SomeRows& some, const double* mean,
                    const ColumnMoments& out, Workers& workers) {
    return add_moments<1>(X, some, mean, out, workers);
}

// Access to sparse columns is random, so the moments of a column are next to each other.
template <class T, class I>
bool column_moments(const Sparse<T, I>& X, const SomeRows& some, const double* mean,
                    const ColumnMoments& out, Workers& workers) {
    std::vector<double> together(4 * X.d);
    double* first = together.data();
    if (!add_moments<4>(X, some, mean, {first, first + 1, first + 2}, workers)) return false;
    for (size_t j = 0; j < X.d; ++j) {
        out.total[j] = first[4 * j];
        out.square[j] = first[4 * j + 1];
        out.largest[j] = first[4 * j + 2];
    }
    return true;
}

// out = root · ((x − mean) · scale, 1) for `count` rows from row `first` on; root[0] and out[0]
// belong to row `first`.
template <class T>
void scaled_rows(const Dense<T>& X, const Columns& columns, size_t first, size_t count,
                 const double* root, double* out) {
    const size_t d = X.d;
    const double *mean = columns.mean, *scale = columns.scale;
    for (size_t i = 0; i < count; ++i) {
        const T* x = X.data + static_cast<ptrdiff_t>(first + i) * X.row_stride;
        double* to = out + i * (d + 1);
        const double r = root[i];
        if (X.column_stride == 1) {
#pragma omp simd
            for (size_t j = 0; j < d; ++j) {
                to[j] = r * ((static_cast<double>(x[j]) - mean[j]) * scale[j]);
            }
        } else {
            for (size_t j = 0; j < d; ++j) {
                const auto value =
                    static_cast<double>(x[static_cast<ptrdiff_t>(j) * X.column_stride]);
                to[j] = r * ((value - mean[j]) * scale[j]);
            }
        }
        to[d] = r;
    }
}

// out += Σ h (x·scale, 1)(x·scale, 1)ᵀ over all rows, lower triangle; false if interrupted.
template <class T, class I>
bool gram(const Sparse<T, I>& X, const double* h, const double* scale, double* out,
          Workers& workers) {
    const size_t d = X.d, width = d + 1;
    for (size_t i = 0; i < X.n; ++i) {
        if (i % 64 == 0 && !workers.poll()) return false;
        if (h[i] == 0.0) continue;
        const auto first = static_cast<size_t>(X.indptr[i]);
        const auto last = static_cast<size_t>(X.indptr[i + 1]);
        for (size_t a = first; a < last; ++a) {
            const auto j = static_cast<size_t>(X.indices[a]);
            const double v = h[i] * static_cast<double>(X.data[a]) * scale[j];
            out[d * width + j] += v;
            for (size_t b = first; b <= a; ++b) {
                const auto k = static_cast<size_t>(X.indices[b]);
                out[std::max(j, k) * width + std::min(j, k)] +=
                    v * static_cast<double>(X.data[b]) * scale[k];
            }
        }
        out[d * width + d] += h[i];
    }
    return true;
}

}  // namespace TARGET
}  // namespace drolearn
