// The coefficients of a model on sparse data, and the steps of a descent, each of which touches
// only the columns of the drawn rows.
//
// Columns with the same scale D form a set; the penalty and the drift act on all of them alike.
// Write the coefficients of a set as w = a x + h drift. A step γ without data changes only a and h:
//
//     a ← a/(1 + γ D l2),    h ← (h − γ D)/(1 + γ D l2).
//
// The data change the x of the columns that occur in the drawn rows. The weighted sum of the
// iterates follows from running sums. With A = Σ ωγ a, H = Σ ωγ h and B = Σ (A before a change of
// x) · (change),
//
//     Σ ωγ w = A x − B + H drift.
//
// A and B grow while a falls, so the difference A x − B loses digits, about as many as a has lost.
// A set therefore starts anew, with x = w, a = 1 and all sums zero, when a is small.
#pragma once

#include <algorithm>
#include <cmath>
#include <vector>

#include "model.hpp"
#include "rows.hpp"

namespace drolearn::TARGET {

template <class Rows>
class SparseModel {
  public:
    SparseModel(const Rows& X, const Model& model, const Columns& columns, const double* drift,
                double l2)
        : X_(X), model_(model), drift_(drift), l2_(l2), m_(model.m), width_(X.d + 1) {
        make_sets(columns.scale);
        intercept_scale_ = columns.scale[X.d];
        x_.resize(m_ * X.d);
        for (size_t c = 0; c < m_; ++c) {
            std::copy_n(model.theta + c * width_, X.d, x_.data() + c * X.d);
        }
        sum_.assign(m_ * X.d, 0.0);
        for (Gradient* gradient : {&base_, &correction_}) {
            gradient->g.assign(m_ * X.d, 0.0);
            gradient->intercept.assign(m_, 0.0);
        }
    }

    // Scores of drawn rows at θ.
    void scores(const DrawnRows& drawn, double* f) const {
        prefetch_rows(X_, drawn, 0, prefetch_distance);
        for (size_t i = 0; i < drawn.count; ++i) {
            prefetch_rows(X_, drawn, i + prefetch_distance, i + prefetch_distance + 1);
            for (size_t c = 0; c < m_; ++c) {
                f[i * m_ + c] = drift_ ? score_of<true>(drawn[i], c) : score_of<false>(drawn[i], c);
            }
        }
    }

    // Scores of drawn rows at another point.
    void scores_at(const double* theta, const DrawnRows& drawn, double* f) const {
        for (size_t i = 0; i < drawn.count; ++i) {
            for (size_t c = 0; c < m_; ++c) {
                f[i * m_ + c] = row_score(X_, drawn[i], theta + c * width_);
            }
        }
    }

    void begin_step(double gamma, const Part&) {
        for (size_t k = 0; k < sets_.size(); ++k) {
            lengths_[k] = gamma * sets_[k].scale / sets_[k].shrink;
        }
    }

    double base_norm(const Part& base) { return gather(base, base_); }

    double correction_norm(const Part& correction) { return gather(correction, correction_); }

    // One step along base + factor · correction. If the norm of the base gradient was not measured,
    // that gradient is not gathered: each row changes the coefficients of its columns.
    void step(const Parts& parts, double gamma, double factor, double omega) {
        if (base_.count == 0) {
            move_by_rows(parts.base);
        } else {
            move(base_, 1.0);
        }
        move(correction_, factor);
        for (size_t c = 0; c < m_; ++c) {
            const double slope = base_.intercept[c] + factor * correction_.intercept[c];
            step_intercept(c, gamma, slope, omega);
            base_.intercept[c] = correction_.intercept[c] = 0.0;
        }
        step_sets(gamma, omega);
    }

    // Writes the coefficients and their sums back to the model.
    void finish() {
        for (size_t k = 0; k < sets_.size(); ++k) restart(k);
    }

  private:
    // Below this a, a set starts anew; the average then keeps about twelve digits.
    static constexpr double smallest_shrink = 1e-4;

    // Columns with the same scale.
    struct Set {
        double scale;
        double shrink = 1, drifted = 0;          // a, h
        double sum_shrink = 0, sum_drifted = 0;  // A, H
        std::vector<uint32_t> columns = {};
    };

    // A gradient. `g` is zero but in the first `count` of `columns`, where column j of score c has
    // the number c d + j. A column whose gradient was zero for a moment is in the list twice.
    struct Gradient {
        std::vector<double> g, intercept;
        std::vector<size_t> columns;
        size_t count = 0;

        void make_room(size_t more) {
            if (columns.size() < count + more) columns.resize(2 * (count + more));
        }
    };

    void make_sets(const double* scale) {
        // Scales are zero or powers of two: the exponent identifies them.
        std::vector<int> set_of_exponent(4096, -1);
        set_.resize(X_.d);
        for (size_t j = 0; j < X_.d; ++j) {
            int exponent = 0;
            std::frexp(scale[j], &exponent);
            int& set = set_of_exponent[scale[j] > 0.0 ? static_cast<size_t>(exponent + 2048) : 0];
            if (set < 0) {
                set = static_cast<int>(sets_.size());
                sets_.push_back({scale[j]});
            }
            set_[j] = static_cast<uint8_t>(set);
            sets_[static_cast<size_t>(set)].columns.push_back(static_cast<uint32_t>(j));
        }
        copy_sets();
    }

    // Writes a set to the model, and starts it anew.
    void restart(size_t k) {
        Set& set = sets_[k];
        for (size_t c = 0; c < m_; ++c) {
            for (const uint32_t j : set.columns) {
                const size_t at = c * width_ + j;
                double &x = x_[c * X_.d + j], &sum = sum_[c * X_.d + j];
                const double drift = drift_ ? drift_[at] : 0.0;
                model_.average[at] += (set.sum_shrink * x - sum) + set.sum_drifted * drift;
                x = set.shrink * x + set.drifted * drift;
                sum = 0.0;
                model_.theta[at] = x;
            }
        }
        set.shrink = 1.0;
        set.drifted = set.sum_shrink = set.sum_drifted = 0.0;
    }

    // Copies what the loops over rows read into separate arrays.
    void copy_sets() {
        for (size_t k = 0; k < sets_.size(); ++k) {
            shrinks_[k] = sets_[k].shrink;
            drifts_[k] = sets_[k].drifted;
            sums_[k] = sets_[k].sum_shrink;
            scales_[k] = sets_[k].scale;
        }
    }

    // Computes the gradient Σ u (x, 1), and returns its norm √(Σ D g²).
    double gather(const Part& part, Gradient& to) {
        for (size_t i = 0; i < part.drawn.count; ++i) {
            prefetch_rows(X_, part.drawn, i + prefetch_distance, i + prefetch_distance + 1);
            for (size_t c = 0; c < m_; ++c) {
                const double u = part.u[i * m_ + c];
                if (u != 0.0) add_row_to(to, part.drawn[i], c, u);
            }
        }
        double total = 0.0;
        for (size_t k = 0; k < to.count; ++k) {
            const size_t at = to.columns[k];
            const double g = to.g[at];
            total += scales_[set_of(at)] * g * g;
        }
        for (const double g : to.intercept) total += intercept_scale_ * g * g;
        return std::sqrt(total);
    }

    // Adds u (x, 1) of a row to the gradient of score c. A column is listed when its g was zero:
    // its number is always written, and counted only then, which is faster than a branch.
    void add_row_to(Gradient& to, size_t row, size_t c, double u) {
        const auto first = static_cast<size_t>(X_.indptr[row]);
        const auto last = static_cast<size_t>(X_.indptr[row + 1]);
        to.make_room(last - first);
        size_t* columns = to.columns.data();
        size_t count = to.count;
        double* g = to.g.data() + c * X_.d;
        for (size_t a = first; a < last; ++a) {
            const auto j = static_cast<size_t>(X_.indices[a]);
            const double before = g[j];
            g[j] = before + u * static_cast<double>(X_.data[a]);
            columns[count] = c * X_.d + j;
            count += before == 0.0;
        }
        to.count = count;
        to.intercept[c] += u;
    }

    // Moves the coefficients by factor · gradient, and sets the gradient to zero.
    void move(Gradient& gradient, double factor) {
        for (size_t k = 0; k < gradient.count; ++k) {
            const size_t at = gradient.columns[k];
            change(at, set_of(at), factor * gradient.g[at]);
            gradient.g[at] = 0.0;
        }
        gradient.count = 0;
    }

    void move_by_rows(const Part& base) {
        for (size_t c = 0; c < m_; ++c) {
            for (size_t i = 0; i < base.drawn.count; ++i) {
                const double u = base.u[i * m_ + c];
                if (u == 0.0) continue;
                base_.intercept[c] += u;
                each_number(X_, base.drawn[i], [=, this](size_t j, double x) {
                    change(c * X_.d + j, set_[j], u * x);
                });
            }
        }
    }

    PER_NUMBER void change(size_t at, size_t set, double g) {
        const double by = -lengths_[set] * g;
        x_[at] += by;
        sum_[at] += sums_[set] * by;
    }

    size_t set_of(size_t at) const { return set_[m_ == 1 ? at : at % X_.d]; }

    template <bool drifting>
    double score_of(size_t row, size_t c) const {
        const auto *indices = X_.indices, *indptr = X_.indptr;
        const auto* data = X_.data;
        const auto first = static_cast<size_t>(indptr[row]);
        const auto last = static_cast<size_t>(indptr[row + 1]);
        const double* x = x_.data() + c * X_.d;
        const uint8_t* set = set_.data();
        const auto term = [&](size_t a) {
            const auto j = static_cast<size_t>(indices[a]);
            double w = shrinks_[set[j]] * x[j];
            if constexpr (drifting) w += drifts_[set[j]] * drift_[c * width_ + j];
            return static_cast<double>(data[a]) * w;
        };
        // Four sums: additions to one would wait for each other.
        double s0 = 0.0, s1 = 0.0, s2 = 0.0, s3 = 0.0;
        size_t a = first;
        for (; a + 4 <= last; a += 4) {
            s0 += term(a);
            s1 += term(a + 1);
            s2 += term(a + 2);
            s3 += term(a + 3);
        }
        for (; a < last; ++a) s0 += term(a);
        return ((s0 + s1) + (s2 + s3)) + model_.theta[c * width_ + X_.d];
    }

    void step_intercept(size_t c, double gamma, double g, double omega) {
        double& w = model_.theta[c * width_ + X_.d];
        w -= gamma * intercept_scale_ * (g + (drift_ ? drift_[c * width_ + X_.d] : 0.0));
        model_.average[c * width_ + X_.d] += omega * gamma * w;
    }

    // The effect of penalty and drift on all columns.
    void step_sets(double gamma, double omega) {
        for (size_t k = 0; k < sets_.size(); ++k) {
            Set& set = sets_[k];
            const double size = gamma * set.scale;
            set.shrink /= 1.0 + size * l2_;
            set.drifted = (set.drifted - size) / (1.0 + size * l2_);
            set.sum_shrink += omega * gamma * set.shrink;
            set.sum_drifted += omega * gamma * set.drifted;
            if (set.shrink < smallest_shrink) restart(k);
        }
        copy_sets();
    }

    const Rows& X_;
    Model model_;
    const double* drift_;
    double l2_;
    size_t m_, width_;
    double intercept_scale_ = 0;
    std::vector<Set> sets_;
    std::vector<uint8_t> set_;     // the set of each column
    std::vector<double> x_, sum_;  // x and B
    Gradient base_, correction_;
    // Copies of the members of `sets_`, and γ D/a.
    double shrinks_[most_scales], drifts_[most_scales], sums_[most_scales], scales_[most_scales];
    double lengths_[most_scales];
};

}  // namespace drolearn::TARGET
