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
#include <bit>
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
        cells_.resize(m_ * X.d);
        make_sets(columns.scale);
        intercept_scale_ = columns.scale[X.d];
        for (size_t c = 0; c < m_; ++c) {
            for (size_t j = 0; j < X.d; ++j) {
                cells_[c * X.d + j].x = model.theta[c * width_ + j];
                cells_[c * X.d + j].set = cells_[j].set;
            }
        }
        base_slopes_.resize(m_);
        correction_slopes_.resize(m_);
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

    void begin_step(double gamma, const Part& base) {
        for (size_t k = 0; k < sets_.size(); ++k) {
            const double length = gamma * sets_[k].scale / sets_[k].shrink;
            factors_[k].x = -length;
            factors_[k].sum = -length * sets_[k].sum_shrink;
        }
        sum_slopes(base, base_slopes_);
        std::fill(correction_slopes_.begin(), correction_slopes_.end(), 0.0);
    }

    double base_norm(const Part& base) { return gather(base, base_slopes_); }

    double correction_norm(const Part& correction) {
        clear();  // a base gradient
        sum_slopes(correction, correction_slopes_);
        return gather(correction, correction_slopes_);
    }

    // One step along base + factor · correction. Only the gradient whose norm was measured last is
    // gathered. If that is not the base, each row of the base changes the coefficients of its
    // columns.
    void step(const Parts& parts, double gamma, double factor, double omega) {
        if (count_ == 0 || parts.correction.drawn.count > 0) move_by_rows(parts.base);
        move(factor);
        for (size_t c = 0; c < m_; ++c) {
            step_intercept(c, gamma, base_slopes_[c] + factor * correction_slopes_[c], omega);
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

    // One column of one score; all of it is in one cache line. The g of the gradient is zero but
    // in the cells that are listed in `gathered_`.
    struct alignas(32) Cell {
        double x = 0, sum = 0;  // x, B
        double g = 0;
        uint32_t set = 0;
    };

    // What the loops over rows read of a set: a, h, and by how much a gradient of one changes x and
    // B, which is −γ D/a and A times as much.
    struct alignas(32) Factors {
        double shrink, drifted, x, sum;
    };

    void make_sets(const double* scale) {
        // Scales are zero or powers of two: the exponent identifies them.
        std::vector<int> set_of_exponent(4096, -1);
        for (size_t j = 0; j < X_.d; ++j) {
            int exponent = 0;
            std::frexp(scale[j], &exponent);
            int& set = set_of_exponent[scale[j] > 0.0 ? static_cast<size_t>(exponent + 2048) : 0];
            if (set < 0) {
                set = static_cast<int>(sets_.size());
                sets_.push_back({scale[j]});
            }
            cells_[j].set = static_cast<uint32_t>(set);
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
                Cell& cell = cells_[c * X_.d + j];
                const double drift = drift_ ? drift_[at] : 0.0;
                model_.average[at] +=
                    (set.sum_shrink * cell.x - cell.sum) + set.sum_drifted * drift;
                cell.x = set.shrink * cell.x + set.drifted * drift;
                cell.sum = 0.0;
                model_.theta[at] = cell.x;
            }
        }
        set.shrink = 1.0;
        set.drifted = set.sum_shrink = set.sum_drifted = 0.0;
    }

    void copy_sets() {
        for (size_t k = 0; k < sets_.size(); ++k) {
            factors_[k].shrink = sets_[k].shrink;
            factors_[k].drifted = sets_[k].drifted;
        }
    }

    // The gradient in the intercepts, Σ u.
    void sum_slopes(const Part& part, std::vector<double>& slopes) const {
        std::fill(slopes.begin(), slopes.end(), 0.0);
        for (size_t i = 0; i < part.drawn.count; ++i) {
            for (size_t c = 0; c < m_; ++c) slopes[c] += part.u[i * m_ + c];
        }
    }

    // Computes the gradient Σ u (x, 1), and returns its norm √(Σ D g²).
    double gather(const Part& part, const std::vector<double>& slopes) {
        for (size_t i = 0; i < part.drawn.count; ++i) {
            prefetch_rows(X_, part.drawn, i + prefetch_distance, i + prefetch_distance + 1);
            for (size_t c = 0; c < m_; ++c) {
                const double u = part.u[i * m_ + c];
                if (u != 0.0) gather_row(part.drawn[i], c, u);
            }
        }
        double total = 0.0;
        for (size_t k = 0; k < count_; ++k) {
            const Cell& cell = *gathered_[k];
            total += sets_[cell.set].scale * cell.g * cell.g;
        }
        for (const double g : slopes) total += intercept_scale_ * g * g;
        return std::sqrt(total);
    }

    // Adds u x of a row to the gradient of score c. A cell is listed when its g was zero: its
    // address is always written, and counted only then, which is faster than a branch. A cell whose
    // g was zero for a moment is in the list twice.
    PER_CHUNK void gather_row(size_t row, size_t c, double u) {
        const auto first = static_cast<size_t>(X_.indptr[row]);
        const auto last = static_cast<size_t>(X_.indptr[row + 1]);
        const size_t most = count_ + (last - first);
        if (gathered_.size() < most) gathered_.resize(2 * most);
        Cell** list = gathered_.data();
        size_t count = count_;
        Cell* cells = cells_.data() + c * X_.d;
        const auto* indices = X_.indices;
        const auto* data = X_.data;
        for (size_t a = first; a < last; ++a) {
            Cell& cell = cells[indices[a]];
            const auto bits = std::bit_cast<uint64_t>(cell.g);
            cell.g += u * static_cast<double>(data[a]);
            list[count] = &cell;
            count += (bits << 1) == 0;  // g == 0, without a test for NaN
        }
        count_ = count;
    }

    // Sets the gathered gradient to zero.
    void clear() {
        for (size_t k = 0; k < count_; ++k) gathered_[k]->g = 0.0;
        count_ = 0;
    }

    // Moves the coefficients by factor · gathered gradient, and sets that to zero.
    void move(double factor) {
        for (size_t k = 0; k < count_; ++k) {
            Cell& cell = *gathered_[k];
            change(cell, factors_, factor * cell.g);
            cell.g = 0.0;
        }
        count_ = 0;
    }

    void move_by_rows(const Part& base) {
        for (size_t i = 0; i < base.drawn.count; ++i) {
            for (size_t c = 0; c < m_; ++c) {
                const double u = base.u[i * m_ + c];
                if (u != 0.0) move_row(base.drawn[i], c, u);
            }
        }
    }

    // Changes the coefficients of the columns of one row by its gradient.
    PER_CHUNK void move_row(size_t row, size_t c, double u) {
        const auto* index = X_.indices + X_.indptr[row];
        const auto* end = X_.indices + X_.indptr[row + 1];
        const auto* data = X_.data + X_.indptr[row];
        Cell* cells = cells_.data() + c * X_.d;
        const Factors* factors = factors_;
        for (; index + 2 <= end; index += 2, data += 2) {
            change(cells[*index], factors, u * static_cast<double>(*data));
            change(cells[index[1]], factors, u * static_cast<double>(data[1]));
        }
        if (index < end) change(cells[*index], factors, u * static_cast<double>(*data));
    }

    PER_NUMBER static void change(Cell& cell, const Factors* factors, double g) {
        const Factors& by = factors[cell.set];
        cell.x += by.x * g;
        cell.sum += by.sum * g;
    }

    template <bool drifting>
    PER_CHUNK double score_of(size_t row, size_t c) const {
        const auto *indices = X_.indices, *indptr = X_.indptr;
        const auto* data = X_.data;
        const auto first = static_cast<size_t>(indptr[row]);
        const auto last = static_cast<size_t>(indptr[row + 1]);
        const Cell* cells = cells_.data() + c * X_.d;
        const Factors* factors = factors_;
        const double* drift = drifting ? drift_ + c * width_ : nullptr;
        const auto term = [=](size_t a) {
            const Cell& cell = cells[indices[a]];
            double w = factors[cell.set].shrink * cell.x;
            if constexpr (drifting) w += factors[cell.set].drifted * drift[indices[a]];
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
    std::vector<Cell> cells_;  // column j of score c is cell c d + j
    std::vector<Cell*> gathered_;
    size_t count_ = 0;  // cells in `gathered_`
    std::vector<double> base_slopes_, correction_slopes_;
    Factors factors_[most_scales];
};

}  // namespace drolearn::TARGET
