// Losses of single examples: values, slopes and second derivatives with respect to the score.
//
// A loss is a function l(x) of the margin x = y f or of the residual x = f − y, or a function of
// the scores of all classes. Each class below has at(x) = (l(x), l'(x)) and bend(x) = l''(x),
// written without branches, so loops over them vectorise.
#pragma once

#include <cmath>
#include <vector>

#include "elementary.hpp"
#include "target.hpp"
#include "threads.hpp"
#include "types.hpp"

namespace drolearn {

// Scores f, m per row, and labels y of n rows.
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

// log(1 + e⁻ˣ), accurate for x of both signs.
struct Logistic {
    explicit Logistic(const Loss&) {}
    PER_NUMBER ValueSlope at(double x) const {
        const double e = fast_exp(-std::fabs(x));
        const double value = fast_log1p(e) + select(x < 0.0, -x, 0.0);
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
        const double u = select(x >= 1.0, 0.0, 1.0 - x);  // NaN stays NaN
        return {u * u, -2.0 * u};
    }
    PER_NUMBER double bend(double x) const { return select(x < 1.0, 2.0, 0.0); }
};

// 0 for x ≥ 1, slope −1 for x ≤ 1 − width, quadratic in between.
struct SmoothedHinge {
    double width;
    explicit SmoothedHinge(const Loss& loss) : width(loss.width) {}
    PER_NUMBER ValueSlope at(double x) const {
        const double u = select(x >= 1.0, 0.0, 1.0 - x);  // NaN stays NaN
        const double v = select(u >= width, width, u);
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

// ½ x² for |x| ≤ width, linear beyond.
struct Huber {
    double width;
    explicit Huber(const Loss& loss) : width(loss.width) {}
    PER_NUMBER ValueSlope at(double x) const {
        const double v = select(x < -width, -width, select(x > width, width, x));
        return {0.5 * v * v + width * (std::fabs(x) - std::fabs(v)), v};
    }
    PER_NUMBER double bend(double x) const { return select(std::fabs(x) <= width, 1.0, 0.0); }
};

// Calls f with the class of a built-in loss of one score.
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

// log Σ exp f − f_y and its gradient softmax(f) − e_y; y holds class numbers.
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
        const size_t label = static_cast<size_t>(rows.y[i]);
        z[i] = std::log(total) + (top - f[label]);
        for (size_t c = 0; c < m; ++c) out[c] /= total;
        out[label] -= 1.0;
    }
}

// Margins or residuals of some rows.
inline void arguments_of(const Loss& loss, const Scored& rows, double* x) {
    for (size_t i = 0; i < rows.n; ++i) {
        x[i] = loss.residual ? rows.f[i] - rows.y[i] : rows.f[i] * rows.y[i];
    }
}

// Losses and slopes of some rows; false if a user's function raised an exception.
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
    visit_loss(loss, [&](const auto& function) {
        if (loss.residual) {
#pragma omp simd
            for (size_t i = 0; i < n; ++i) {
                const ValueSlope at = function.at(f[i] - y[i]);
                z[i] = at.value;
                slope[i] = at.slope;
            }
        } else {
#pragma omp simd
            for (size_t i = 0; i < n; ++i) {
                const ValueSlope at = function.at(f[i] * y[i]);
                z[i] = at.value;
                slope[i] = at.slope * y[i];
            }
        }
    });
    return true;
}

// Second derivatives for losses of one score; false if a user's function raised an exception.
PER_CHUNK inline bool bends_of_rows(const Loss& loss, const Scored& rows, double* out) {
    const double *f = rows.f, *y = rows.y;
    const size_t n = rows.n;
    if (loss.kind == LossKind::custom) {  // by finite differences of the slope
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
    visit_loss(loss, [&](const auto& function) {
        if (loss.residual) {
#pragma omp simd
            for (size_t i = 0; i < n; ++i) out[i] = function.bend(f[i] - y[i]);
        } else {
#pragma omp simd
            for (size_t i = 0; i < n; ++i) out[i] = function.bend(f[i] * y[i]);
        }
    });
    return true;
}

// Calls body(rows, start) for chunks of the rows. Custom losses run in one thread and get many
// chunks per call.
template <class Body>
Status over_rows(const Loss& loss, const Scored& rows, Workers& workers, Body body) {
    const bool custom = loss.kind == LossKind::custom;
    const size_t step = custom ? 16 * chunk_size : chunk_size;
    bool raised = false;  // by a user's function
    const auto task = [&](size_t k) {
        const size_t start = k * step, count = std::min(step, rows.n - start);
        const Scored part{rows.f + start * rows.m, rows.y + start, count, rows.m};
        if (!raised && !body(part, start)) raised = true;
    };
    Workers one_thread;
    const size_t tasks = (rows.n + step - 1) / step;
    if (!(custom ? one_thread : workers).run(tasks, task)) return Status::interrupted;
    return raised ? Status::callback_failed : Status::ok;
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
