// Losses of single examples: value, slope and second derivative in the score.
//
// A loss is a function l(x) of the margin x = y f or of the residual x = f − y, or of the scores
// of all classes. Each class below has l(x), l'(x) and l''(x), written so that loops vectorise.
#pragma once

#include <cmath>
#include <vector>

#include "elementary.hpp"
#include "target.hpp"
#include "threads.hpp"
#include "types.hpp"

namespace drolearn {

// Scores f, m for each of n rows, and labels y.
struct Scored {
    const double* f = nullptr;
    const double* y = nullptr;
    size_t n = 0;
    size_t m = 1;
};

namespace TARGET {

struct ValueSlope {
    double value, slope;
};

// log(1 + e⁻ˣ), with all digits on both sides.
struct Logistic {
    explicit Logistic(const Loss&) {}
    PER_NUMBER ValueSlope at(double x) const {
        const double e = fast_exp(-std::fabs(x));
        const double value = fast_log1p(e) + 0.5 * (std::fabs(x) - x);  // + max(−x, 0)
        return {value, -select(x > 0.0, e, 1.0) / (1.0 + e)};
    }
    PER_NUMBER double bend(double x) const {
        const double e = fast_exp(-std::fabs(x));
        return e / ((1.0 + e) * (1.0 + e));
    }
};

// max(1 − x, 0)².
struct SquaredHinge {
    explicit SquaredHinge(const Loss&) {}
    PER_NUMBER ValueSlope at(double x) const {
        const double u = select(x < 1.0, 1.0 - x, 0.0);
        return {u * u, -2.0 * u};
    }
    PER_NUMBER double bend(double x) const { return select(x < 1.0, 2.0, 0.0); }
};

// 0 from x = 1 on, slope −1 below 1 − width, a parabola in between.
struct SmoothedHinge {
    double width;
    explicit SmoothedHinge(const Loss& loss) : width(loss.width) {}
    PER_NUMBER ValueSlope at(double x) const {
        const double u = select(x < 1.0, 1.0 - x, 0.0);
        const double v = select(u < width, u, width);
        return {v * v / (2.0 * width) + (u - v), -v / width};
    }
    PER_NUMBER double bend(double x) const {
        return select((1.0 - width <= x) & (x < 1.0), 1.0 / width, 0.0);
    }
};

// ½ x².
struct Squared {
    explicit Squared(const Loss&) {}
    PER_NUMBER ValueSlope at(double x) const { return {0.5 * x * x, x}; }
    PER_NUMBER double bend(double) const { return 1.0; }
};

// ½ x² up to |x| = width, then straight.
struct Huber {
    double width;
    explicit Huber(const Loss& loss) : width(loss.width) {}
    PER_NUMBER ValueSlope at(double x) const {
        const double v = select(x < -width, -width, select(x > width, width, x));
        return {0.5 * v * v + width * (std::fabs(x) - std::fabs(v)), v};
    }
    PER_NUMBER double bend(double x) const { return select(std::fabs(x) <= width, 1.0, 0.0); }
};

// Calls f with the class of a loss that is a function of one number known to the core.
template <class F>
void visit_loss(const Loss& loss, F f) {
    switch (loss.kind) {
        case LossKind::logistic: return f(Logistic(loss));
        case LossKind::squared_hinge: return f(SquaredHinge(loss));
        case LossKind::smoothed_hinge: return f(SmoothedHinge(loss));
        case LossKind::squared: return f(Squared(loss));
        case LossKind::huber: return f(Huber(loss));
        default: return;
    }
}

// log Σ exp f − f_y and its gradient softmax(f) − e_y; y holds the numbers of the classes.
inline void softmax_losses(const Scored& rows, double* z, double* slope) {
    const size_t m = rows.m;
    for (size_t i = 0; i < rows.n; ++i) {
        const double* f = rows.f + i * m;
        double* out = slope + i * m;
        double top = f[0], total = 0.0;
        for (size_t c = 1; c < m; ++c) top = f[c] > top ? f[c] : top;
#pragma omp simd reduction(+ : total)
        for (size_t c = 0; c < m; ++c) {
            out[c] = fast_exp(f[c] - top);
            total += out[c];
        }
        const size_t own = static_cast<size_t>(rows.y[i]);
        z[i] = std::log(total) + (top - f[own]);
        for (size_t c = 0; c < m; ++c) out[c] /= total;
        out[own] -= 1.0;
    }
}

// Margins or residuals of some rows.
inline void arguments_of(const Loss& loss, const Scored& rows, double* x) {
    for (size_t i = 0; i < rows.n; ++i) {
        x[i] = loss.residual ? rows.f[i] - rows.y[i] : rows.f[i] * rows.y[i];
    }
}

// Losses and slopes of some rows; false if a function of the user raised.
PER_CHUNK inline bool losses_of_rows(const Loss& loss, const Scored& rows, double* z,
                                     double* slope) {
    const double *f = rows.f, *y = rows.y;
    const size_t n = rows.n;
    if (loss.kind == LossKind::multinomial) {
        softmax_losses(rows, z, slope);
        return true;
    }
    if (loss.kind == LossKind::custom) {
        std::vector<double> x(n);
        arguments_of(loss, rows, x.data());
        if (!loss.value(x.data(), z, n) || !loss.slope(x.data(), slope, n)) return false;
        for (size_t i = 0; i < n && !loss.residual; ++i) slope[i] *= y[i];
        return true;
    }
    visit_loss(loss, [&](const auto& own) {
        if (loss.residual) {
#pragma omp simd
            for (size_t i = 0; i < n; ++i) {
                const ValueSlope at = own.at(f[i] - y[i]);
                z[i] = at.value;
                slope[i] = at.slope;
            }
        } else {
#pragma omp simd
            for (size_t i = 0; i < n; ++i) {
                const ValueSlope at = own.at(f[i] * y[i]);
                z[i] = at.value;
                slope[i] = at.slope * y[i];
            }
        }
    });
    return true;
}

// Second derivatives of the losses of one score; false if a function of the user raised.
PER_CHUNK inline bool bends_of_rows(const Loss& loss, const Scored& rows, double* out) {
    const double *f = rows.f, *y = rows.y;
    const size_t n = rows.n;
    if (loss.kind == LossKind::custom) {  // by differences of the slope
        std::vector<double> x(n), ends(2 * n), slopes(2 * n);
        arguments_of(loss, rows, x.data());
        for (size_t i = 0; i < n; ++i) {
            const double step = 6e-6 * (1.0 + std::fabs(x[i]));
            ends[2 * i] = x[i] - step;
            ends[2 * i + 1] = x[i] + step;
        }
        if (!loss.slope(ends.data(), slopes.data(), ends.size())) return false;
        for (size_t i = 0; i < n; ++i) {
            const double rise = slopes[2 * i + 1] - slopes[2 * i];
            out[i] = std::fmax(rise / (ends[2 * i + 1] - ends[2 * i]), 0.0);
        }
        return true;
    }
    visit_loss(loss, [&](const auto& own) {
        if (loss.residual) {
#pragma omp simd
            for (size_t i = 0; i < n; ++i) out[i] = own.bend(f[i] - y[i]);
        } else {
#pragma omp simd
            for (size_t i = 0; i < n; ++i) out[i] = own.bend(f[i] * y[i]);
        }
    });
    return true;
}

// Calls body(rows, start) for chunks of the rows, by threads unless functions of the user are
// called, which get many chunks at once.
template <class Body>
Status over_rows(const Loss& loss, const Scored& rows, Workers& workers, Body body) {
    const bool custom = loss.kind == LossKind::custom;
    const size_t step = custom ? 16 * chunk_size : chunk_size;
    bool fine = true;
    const auto task = [&](size_t k) {
        const size_t start = k * step, count = std::min(step, rows.n - start);
        if (fine && !body(Scored{rows.f + start * rows.m, rows.y + start, count, rows.m}, start)) {
            fine = false;
        }
    };
    Workers alone;
    const size_t tasks = (rows.n + step - 1) / step;
    if (!(custom ? alone : workers).run(tasks, task)) return Status::interrupted;
    return fine ? Status::ok : Status::callback_failed;
}

inline Status losses_of(const Loss& loss, const Scored& rows, double* z, double* slope,
                        Workers& workers) {
    return over_rows(loss, rows, workers, [&](const Scored& part, size_t start) {
        return losses_of_rows(loss, part, z + start, slope + start * rows.m);
    });
}

inline Status bends_of(const Loss& loss, const Scored& rows, double* out, Workers& workers) {
    return over_rows(loss, rows, workers, [&](const Scored& part, size_t start) {
        return bends_of_rows(loss, part, out + start);
    });
}

}  // namespace TARGET
}  // namespace drolearn
