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
        make_cells(columns.scale);
        intercept_scale_ = columns.scale[X.d];
        intercept_gradient_.assign(m_, 0.0);
        load();
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

    double base_norm(const Part& base) {
        const double norm = gather(base);
        each_cell(base.drawn, [](Cell& cell) { cell.g = 0.0; });
        std::fill(intercept_gradient_.begin(), intercept_gradient_.end(), 0.0);
        return norm;
    }

    double correction_norm(const Part& correction) { return gather(correction); }

    // One step along base + factor · correction. The base block changes the coefficients row by
    // row. The gradient of the correction was gathered in the cells; it is set to zero when used,
    // so a column that occurs again does not move twice.
    void step(const Parts& parts, double gamma, double factor, double omega) {
        const auto move = [this](Cell& cell, double g) {
            const double change = -lengths_[cell.set] * g;
            cell.x += change;
            cell.sum += sums_[cell.set] * change;
        };
        for (size_t c = 0; c < m_; ++c) {
            double intercept = factor * intercept_gradient_[c];
            Cell* cells = cells_.data() + c * X_.d;
            for (size_t i = 0; i < parts.base.drawn.count; ++i) {
                const double slope = parts.base.u[i * m_ + c];
                if (slope == 0.0) continue;
                intercept += slope;
                each_number(X_, parts.base.drawn[i],
                            [=](size_t j, double x) { move(cells[j], slope * x); });
            }
            step_intercept(c, gamma, intercept, omega);
            intercept_gradient_[c] = 0.0;
        }
        each_cell(parts.correction.drawn, [=](Cell& cell) {
            move(cell, factor * cell.g);
            cell.g = 0.0;
        });
        step_sets(gamma, omega);
    }

    // Writes the coefficients and their sums back to the model.
    void finish() {
        for (size_t c = 0; c < m_; ++c) {
            for (size_t j = 0; j < X_.d; ++j) {
                const Cell& cell = cells_[c * X_.d + j];
                const Set& set = sets_[cell.set];
                const size_t at = c * width_ + j;
                const double drift = drift_ ? drift_[at] : 0.0;
                model_.theta[at] = set.shrink * cell.x + set.drifted * drift;
                model_.average[at] +=
                    (set.sum_shrink * cell.x - cell.sum) + set.sum_drifted * drift;
            }
        }
    }

  private:
    // A coefficient. Its numbers are stored together because columns come in random order: each
    // access then costs one cache line.
    struct Cell {
        double x, sum;  // x and B
        double g;       // the gathered gradient
        uint64_t set;   // number of its set
    };

    // Columns with the same scale.
    struct Set {
        double scale;
        double shrink = 1, drifted = 0;          // a, h
        double sum_shrink = 0, sum_drifted = 0;  // A, H
    };

    void make_cells(const double* scale) {
        // Scales are zero or powers of two: the exponent identifies them.
        std::vector<int> set_of_exponent(4096, -1);
        cells_.resize(X_.d * m_);
        for (size_t j = 0; j < X_.d; ++j) {
            int exponent = 0;
            std::frexp(scale[j], &exponent);
            int& set = set_of_exponent[scale[j] > 0.0 ? static_cast<size_t>(exponent + 2048) : 0];
            if (set < 0) {
                set = static_cast<int>(sets_.size());
                sets_.push_back({scale[j]});
            }
            for (size_t c = 0; c < m_; ++c) cells_[c * X_.d + j].set = static_cast<uint64_t>(set);
        }
    }

    // Reads the coefficients from the model: x = w, a = 1, and all sums zero.
    void load() {
        for (size_t c = 0; c < m_; ++c) {
            for (size_t j = 0; j < X_.d; ++j) {
                Cell& cell = cells_[c * X_.d + j];
                cell = {model_.theta[c * width_ + j], 0.0, 0.0, cell.set};
            }
        }
        for (Set& set : sets_) set = {set.scale};
        copy_sets();
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

    // Adds Σ u (x, 1) to the gradient, which must be zero before, and returns its norm √(Σ D g²).
    // Adding δ to g changes D g² by D δ (2 g + δ).
    double gather(const Part& part) {
        double total = 0.0;
        for (size_t c = 0; c < m_; ++c) {
            Cell* cells = cells_.data() + c * X_.d;
            for (size_t i = 0; i < part.drawn.count; ++i) {
                const double u = part.u[i * m_ + c];
                if (u == 0.0) continue;
                double grown = 0.0;
                each_number(X_, part.drawn[i], [&, u](size_t j, double x) {
                    Cell& cell = cells[j];
                    const double change = u * x, before = cell.g;
                    grown += scales_[cell.set] * change * (2.0 * before + change);
                    cell.g = before + change;
                });
                total += grown;
                intercept_gradient_[c] += u;
            }
        }
        total = std::max(total, 0.0);
        for (const double g : intercept_gradient_) total += intercept_scale_ * g * g;
        return std::sqrt(total);
    }

    // Calls f(cell) for each stored number of some rows.
    template <class F>
    void each_cell(const DrawnRows& drawn, F f) {
        for (size_t c = 0; c < m_; ++c) {
            Cell* cells = cells_.data() + c * X_.d;
            for (size_t i = 0; i < drawn.count; ++i) {
                each_number(X_, drawn[i], [=](size_t j, double) { f(cells[j]); });
            }
        }
    }

    template <bool drifting>
    double score_of(size_t row, size_t c) const {
        const auto *indices = X_.indices, *indptr = X_.indptr;
        const auto* data = X_.data;
        const auto first = static_cast<size_t>(indptr[row]);
        const auto last = static_cast<size_t>(indptr[row + 1]);
        const Cell* cells = cells_.data() + c * X_.d;
        const auto term = [&](size_t a) {
            const auto j = static_cast<size_t>(indices[a]);
            const Cell& cell = cells[j];
            double w = shrinks_[cell.set] * cell.x;
            if constexpr (drifting) w += drifts_[cell.set] * drift_[c * width_ + j];
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
        bool underflowing = false;
        for (Set& set : sets_) {
            const double size = gamma * set.scale;
            set.shrink /= 1.0 + size * l2_;
            set.drifted = (set.drifted - size) / (1.0 + size * l2_);
            set.sum_shrink += omega * gamma * set.shrink;
            set.sum_drifted += omega * gamma * set.drifted;
            underflowing |= set.shrink < 1e-100;
        }
        if (underflowing) {
            finish();
            load();
        } else {
            copy_sets();
        }
    }

    const Rows& X_;
    Model model_;
    const double* drift_;
    double l2_;
    size_t m_, width_;
    double intercept_scale_ = 0;
    std::vector<Set> sets_;
    std::vector<Cell> cells_;
    std::vector<double> intercept_gradient_;  // gathered, one for each score
    // Copies of the members of `sets_`, and γ D/a.
    double shrinks_[most_scales], drifts_[most_scales], sums_[most_scales], scales_[most_scales];
    double lengths_[most_scales];
};

}  // namespace drolearn::TARGET
