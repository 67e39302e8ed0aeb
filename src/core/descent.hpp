// The outer loop of the stochastic methods:
//
//     θ ← (θ − γ_t D (G_t + drift)) / (1 + γ_t D l2),    average ← average + ω γ_t θ,
//
// G_t the gradient of a draw (draws.hpp), D the scale of the columns. The penalty looks at where
// the step ends: none is too large for a step. Intercepts have no penalty.
//
// A draw's gradient comes in two parts, that of its base block and that of its correction. A
// correction longer than clip · (mean norm of the first part) · √(1 + t/100) is cut to that length.
#pragma once

#include <cmath>
#include <vector>

#include "draws.hpp"
#include "loss.hpp"
#include "rows.hpp"

namespace drolearn {

// What is minimised.
struct Objective {
    const Loss& loss;
    const Divergence& divergence;
    double l2;
};

// Labels of all rows, and base weights or a null pointer.
struct Labels {
    const double* y = nullptr;
    const double* base = nullptr;
};

// A point whose gradients are subtracted, and the gradient of the robust loss there; both null
// without anchors.
struct Anchor {
    const double* theta = nullptr;
    const double* drift = nullptr;
};

// The coefficients, m rows of d + 1, and their weighted sum.
struct Model {
    double* theta = nullptr;
    double* average = nullptr;
    size_t m = 1;
};

// Step sizes, how corrections are cut, the weight ω of the average, and when to stop.
struct Steps {
    const double* gammas = nullptr;
    size_t count = 0;
    double clip = infinity;
    double omega = 0;
    double limit = infinity;  // of samples
};

// Sparse columns may have this many different scales, each zero or a power of two.
inline constexpr size_t most_scales = 256;

// What lives on from step to step, besides the model.
struct Tally {
    double step = 0;         // steps so far
    double samples = 0;      // rows drawn so far
    double base_norm = 0;    // mean norm of recent base blocks
    double averaged = 0;     // total weight of the average
    double corrections = 0;  // corrections so far
    double clipped = 0;      // of which were cut
};

// Some rows of a draw.
struct DrawnRows {
    const int64_t* rows = nullptr;
    size_t count = 0;

    size_t operator[](size_t i) const { return static_cast<size_t>(rows[i]); }
};

// Base block and correction of a step: their rows, and u, the signed weight × slope of each row's
// loss in its scores.
struct Part {
    DrawnRows drawn;
    const double* u = nullptr;
};

struct Parts {
    Part base, correction;
};

namespace TARGET {

// Rows that are asked for before they are scored: at random they come late.
inline constexpr size_t ahead = 4;

template <class Rows>
void prefetch_rows(const Rows& X, const DrawnRows& drawn, size_t first, size_t last) {
    for (size_t i = first; i < std::min(last, drawn.count); ++i) prefetch_row(X, drawn[i]);
}

// -- steps of dense models ---------------------------------------------------------------------

template <class Rows>
class DenseModel {
  public:
    DenseModel(const Rows& X, const Model& model, const Columns& columns, const double* drift,
               double l2)
        : X_(X), model_(model), columns_(columns), drift_(drift), l2_(l2), width_(X.d + 1) {
        base_.assign(model.m * width_, 0.0);
        correction_.assign(model.m * width_, 0.0);
    }

    // Scores of drawn rows at θ, or at another point.
    void scores(const DrawnRows& drawn, double* f) const { scores_at(model_.theta, drawn, f); }

    void scores_at(const double* theta, const DrawnRows& drawn, double* f) const {
        prefetch_rows(X_, drawn, 0, drawn.count);
        const auto row = [&](size_t i) { return drawn[i]; };
        if (X_.column_stride == 1) {
            scores_by_four(X_, theta, model_.m, drawn.count, row, f);
            return;
        }
        for (size_t i = 0; i < drawn.count; ++i) {
            for (size_t c = 0; c < model_.m; ++c) {
                f[i * model_.m + c] = row_score(X_, row(i), theta + c * width_);
            }
        }
    }

    void begin_step(double, const Part& base) { gather(base, base_); }

    double base_norm(const Part&) { return norm(base_); }

    double correction_norm(const Part& correction) {
        gather(correction, correction_);
        return norm(correction_);
    }

    // One step along base + factor · correction; both are zero afterwards.
    void step(const Parts&, double gamma, double factor, double omega) {
        const size_t d = X_.d;
        const double *mean = columns_.mean, *scale = columns_.scale;
        for (size_t c = 0; c < model_.m; ++c) {
            double *w = model_.theta + c * width_, *total = model_.average + c * width_;
            double *g = base_.data() + c * width_, *more = correction_.data() + c * width_;
            const double* steady = drift_ ? drift_ + c * width_ : nullptr;
            const double own = g[d] + factor * more[d];
            double shift = 0.0;
#pragma omp simd reduction(+ : shift)
            for (size_t j = 0; j < d; ++j) {
                double slope = g[j] + factor * more[j] - mean[j] * own;
                if (steady) slope += steady[j];
                const double size = gamma * scale[j];
                const double next = (w[j] - size * slope) / (1.0 + size * l2_);
                shift += mean[j] * (w[j] - next);
                w[j] = next;
                total[j] += omega * gamma * next;
                g[j] = 0.0;
                more[j] = 0.0;
            }
            // The intercept takes up the shift of the means.
            w[d] += shift - gamma * scale[d] * (own + (steady ? steady[d] : 0.0));
            total[d] += omega * gamma * w[d];
            g[d] = more[d] = 0.0;
        }
    }

    void finish() {}

  private:
    // gradient += Σ u (x, 1).
    void gather(const Part& part, std::vector<double>& gradient) {
        const auto row = [&](size_t i) { return part.drawn[i]; };
        for (size_t c = 0; c < model_.m; ++c) {
            double* g = gradient.data() + c * width_;
            add_rows(X_, part.drawn.count, row, part.u + c, model_.m, g);
        }
    }

    // ‖g‖ in the metric of the steps: Σ D (g − mean · g_intercept)².
    double norm(const std::vector<double>& gradient) const {
        const double *mean = columns_.mean, *scale = columns_.scale;
        double total = 0.0;
        for (size_t c = 0; c < model_.m; ++c) {
            const double* g = gradient.data() + c * width_;
            const double own = g[X_.d];
            double part = 0.0;
#pragma omp simd reduction(+ : part)
            for (size_t j = 0; j < X_.d; ++j) {
                const double v = g[j] - mean[j] * own;
                part += scale[j] * v * v;
            }
            total += part + scale[X_.d] * own * own;
        }
        return std::sqrt(total);
    }

    const Rows& X_;
    Model model_;
    Columns columns_;
    const double* drift_;
    double l2_;
    size_t width_;
    std::vector<double> base_, correction_;
};

// -- steps of sparse models --------------------------------------------------------------------

// Columns with the same scale D shrink and drift alike. For each such set, the coefficients are
//
//     w = a x + h drift,    a ← a/(1 + γ D l2),    h ← (h − γ D)/(1 + γ D l2),
//
// so that a step changes only the x of the columns it touches. The sum of the iterates follows
// from running sums: with A = Σ ωγ a and B = Σ (A before the change) · (change of x),
//
//     Σ ωγ w = A x − B + H drift,    H = Σ ωγ h.
template <class Rows>
class SparseModel {
  public:
    SparseModel(const Rows& X, const Model& model, const Columns& columns, const double* drift,
                double l2)
        : X_(X), model_(model), drift_(drift), l2_(l2), m_(model.m), width_(X.d + 1) {
        make_cells(columns.scale);
        intercept_scale_ = columns.scale[X.d];
        gathered_.assign(m_, 0.0);
        load();
    }

    void scores(const DrawnRows& drawn, double* f) const {
        prefetch_rows(X_, drawn, 0, ahead);
        for (size_t i = 0; i < drawn.count; ++i) {
            prefetch_rows(X_, drawn, i + ahead, i + ahead + 1);
            for (size_t c = 0; c < m_; ++c) {
                f[i * m_ + c] = drift_ ? score_of<true>(drawn[i], c) : score_of<false>(drawn[i], c);
            }
        }
    }

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
        std::fill(gathered_.begin(), gathered_.end(), 0.0);
        return norm;
    }

    double correction_norm(const Part& correction) { return gather(correction); }

    // One step along base + factor · correction. The base block moves the coefficients row by row;
    // the correction was gathered, and a column that is met again has nothing left to do.
    void step(const Parts& parts, double gamma, double factor, double omega) {
        const auto move = [this](Cell& cell, double g) {
            const double change = -lengths_[cell.set] * g;
            cell.x += change;
            cell.sum += sums_[cell.set] * change;
        };
        for (size_t c = 0; c < m_; ++c) {
            double own = factor * gathered_[c];
            Cell* cells = cells_.data() + c * X_.d;
            for (size_t i = 0; i < parts.base.drawn.count; ++i) {
                const double slope = parts.base.u[i * m_ + c];
                if (slope == 0.0) continue;
                own += slope;
                each_number(X_, parts.base.drawn[i],
                            [=](size_t j, double x) { move(cells[j], slope * x); });
            }
            step_intercept(c, gamma, own, omega);
            gathered_[c] = 0.0;
        }
        each_cell(parts.correction.drawn, [=](Cell& cell) {
            move(cell, factor * cell.g);
            cell.g = 0.0;
        });
        follow(gamma, omega);
    }

    // Writes the coefficients and their sums back.
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
    // A coefficient. All that belongs to a column is next to each other: columns come at random,
    // and each of them costs one line of the cache.
    struct Cell {
        double x, sum;  // x, and B of the running sums
        double g;       // the gradient that was gathered
        uint64_t set;   // the columns that it shrinks with
    };

    // Columns with the same scale.
    struct Set {
        double scale;
        double shrink = 1, drifted = 0;          // a, h
        double sum_shrink = 0, sum_drifted = 0;  // A, H
    };

    // The scales of sparse columns are zero or powers of two: there are few different ones.
    static constexpr size_t most_sets = most_scales;

    void make_cells(const double* scale) {
        std::vector<int> known(4096, -1);  // by exponent
        cells_.resize(X_.d * m_);
        for (size_t j = 0; j < X_.d; ++j) {
            int exponent = 0;
            std::frexp(scale[j], &exponent);
            int& set = known[scale[j] > 0.0 ? static_cast<size_t>(exponent + 2048) : 0];
            if (set < 0) {
                set = static_cast<int>(sets_.size());
                sets_.push_back({scale[j]});
            }
            for (size_t c = 0; c < m_; ++c) cells_[c * X_.d + j].set = static_cast<uint64_t>(set);
        }
    }

    void load() {
        for (size_t c = 0; c < m_; ++c) {
            for (size_t j = 0; j < X_.d; ++j) {
                Cell& cell = cells_[c * X_.d + j];
                cell = {model_.theta[c * width_ + j], 0.0, 0.0, cell.set};
            }
        }
        for (Set& set : sets_) set = {set.scale};
        publish();
    }

    // What loops over rows read lies side by side.
    void publish() {
        for (size_t k = 0; k < sets_.size(); ++k) {
            shrinks_[k] = sets_[k].shrink;
            drifts_[k] = sets_[k].drifted;
            sums_[k] = sets_[k].sum_shrink;
            scales_[k] = sets_[k].scale;
        }
    }

    // Adds Σ u (x, 1) to the gradient, which was zero, and returns its norm √(Σ D g²), which grows
    // by D (g + δ)² − D g² = D δ (2 g + δ).
    double gather(const Part& part) {
        double total = 0.0;
        for (size_t c = 0; c < m_; ++c) {
            Cell* cells = cells_.data() + c * X_.d;
            for (size_t i = 0; i < part.drawn.count; ++i) {
                const double own = part.u[i * m_ + c];
                if (own == 0.0) continue;
                double grown = 0.0;
                each_number(X_, part.drawn[i], [&, own](size_t j, double x) {
                    Cell& cell = cells[j];
                    const double change = own * x, before = cell.g;
                    grown += scales_[cell.set] * change * (2.0 * before + change);
                    cell.g = before + change;
                });
                total += grown;
                gathered_[c] += own;
            }
        }
        total = std::max(total, 0.0);
        for (const double own : gathered_) total += intercept_scale_ * own * own;
        return std::sqrt(total);
    }

    // Calls f(cell) for the cells of some rows, once for each number.
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
        double s0 = 0.0, s1 = 0.0, s2 = 0.0, s3 = 0.0;  // four sums, as one would wait for itself
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

    // What the step does to columns that it does not touch.
    void follow(double gamma, double omega) {
        bool vanishing = false;
        for (Set& set : sets_) {
            const double size = gamma * set.scale;
            set.shrink /= 1.0 + size * l2_;
            set.drifted = (set.drifted - size) / (1.0 + size * l2_);
            set.sum_shrink += omega * gamma * set.shrink;
            set.sum_drifted += omega * gamma * set.drifted;
            vanishing |= set.shrink < 1e-100;
        }
        if (vanishing) {
            finish();
            load();
        } else {
            publish();
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
    std::vector<double> gathered_;  // the gradient of the intercepts
    // What loops over rows need of each set.
    double shrinks_[most_sets], drifts_[most_sets], sums_[most_sets], scales_[most_sets];
    double lengths_[most_sets];
};

template <class T>
DenseModel<Dense<T>> model_for(const Dense<T>& X, const Model& model, const Columns& columns,
                               const double* drift, double l2) {
    return {X, model, columns, drift, l2};
}

template <class T, class I>
SparseModel<Sparse<T, I>> model_for(const Sparse<T, I>& X, const Model& model,
                                    const Columns& columns, const double* drift, double l2) {
    return {X, model, columns, drift, l2};
}

// -- the loop ------------------------------------------------------------------------------------

// The rows of one draw, and what is known of each.
struct Drawn {
    std::vector<int64_t> rows;
    std::vector<double> y, b, f, z, u, other, weights, scratch;

    void make_room(size_t count, size_t m, bool weighted) {
        if (rows.size() >= count) return;
        rows.resize(count);
        for (auto* each : {&y, &z, &weights, &scratch}) each->resize(count);
        if (weighted) b.resize(count);
        for (auto* each : {&f, &u, &other}) each->resize(count * m);
    }
};

template <class Rows>
class Descent {
  public:
    Descent(const Objective& objective, const Plan& plan, const Rows& X, const Labels& labels,
            const Columns& columns, const Anchor& anchor, Workers& workers)
        : objective_(objective), plan_(plan), X_(X), labels_(labels), columns_(columns),
          anchor_(anchor), workers_(workers) {}

    // Some steps. The model and the tally are those of the last step that was finished.
    Status run(const BitGenerator& rng, const Model& model, const Steps& steps, Tally& tally) {
        auto moving = model_for(X_, model, columns_, anchor_.drift, objective_.l2);
        Status status = Status::ok;
        for (size_t s = 0; s < steps.count && status == Status::ok; ++s) {
            if (tally.samples >= steps.limit) break;
            if (!workers_.poll()) {
                status = Status::interrupted;
                break;
            }
            const Choice choice = choose(rng, plan_, tally.step);
            status = step(moving, rng, choice, model.m, steps, steps.gammas[s], tally);
        }
        moving.finish();
        return status;
    }

  private:
    template <class Moving>
    Status step(Moving& moving, const BitGenerator& rng, const Choice& choice, size_t m,
                const Steps& steps, double gamma, Tally& tally) {
        const auto count = static_cast<size_t>(choice.count);
        const auto first = static_cast<size_t>(choice.base);
        drawn_.make_room(count, m, labels_.base != nullptr);
        const Blocks blocks = place(rng, plan_, choice, shuffle_, drawn_.rows.data());
        const int64_t* rows = drawn_.rows.data();
        for (size_t i = 0; i < count; ++i) drawn_.y[i] = labels_.y[rows[i]];
        for (size_t i = 0; i < count && labels_.base; ++i) drawn_.b[i] = labels_.base[rows[i]];
        const auto at_theta = [&](const DrawnRows& part, double* f) { moving.scores(part, f); };
        const auto at_anchor = [&](const DrawnRows& part, double* f) {
            moving.scores_at(anchor_.theta, part, f);
        };
        Status status = slopes(blocks, count, m, at_theta, drawn_.u);
        if (status == Status::ok && anchor_.theta) {
            status = slopes(blocks, count, m, at_anchor, drawn_.other);
            for (size_t i = 0; i < count * m; ++i) drawn_.u[i] -= drawn_.other[i];
        }
        if (status != Status::ok) return status;
        // The mean of the norms so far, and later of the last hundred or so. It changes slowly:
        // after the first steps, one in eight is looked at.
        const bool measured = tally.step < 100.0 || std::fmod(tally.step, 8.0) == 0.0;
        const double* u = drawn_.u.data();
        const Parts parts{{{rows, first}, u}, {{rows + first, count - first}, u + first * m}};
        double factor = 1.0, size = 0.0;
        moving.begin_step(gamma, parts.base);
        if (measured) {
            size = moving.base_norm(parts.base);
            tally.base_norm += (size - tally.base_norm) / std::min(tally.step + 1.0, 100.0);
        }
        if (choice.level > 0) {
            const double extra = moving.correction_norm(parts.correction);
            const double bound = steps.clip * tally.base_norm * std::sqrt(1.0 + tally.step / 100.0);
            tally.corrections += 1.0;
            if (extra > bound) {
                factor = bound / extra;
                tally.clipped += 1.0;
            }
            size += factor * extra;
        }
        if (!(size < infinity)) return Status::not_finite;
        moving.step(parts, gamma, factor, steps.omega);
        tally.step += 1.0;
        tally.samples += static_cast<double>(count);
        tally.averaged += steps.omega * gamma;
        return Status::ok;
    }

    // Signed weight × slope of the loss in the score, for each row of the draw.
    template <class Scores>
    Status slopes(const Blocks& blocks, size_t count, size_t m, Scores scores,
                  std::vector<double>& u) {
        constexpr size_t some = 4096;  // rows between two looks at the clock
        for (size_t i = 0; i < count; i += some) {
            if (!workers_.poll()) return Status::interrupted;
            const DrawnRows part{drawn_.rows.data() + i, std::min(some, count - i)};
            scores(part, drawn_.f.data() + i * m);
        }
        const Scored scored{drawn_.f.data(), drawn_.y.data(), count, m};
        Status status = losses_of(objective_.loss, scored, drawn_.z.data(), u.data(), workers_);
        if (status != Status::ok) return status;
        const double* base = labels_.base ? drawn_.b.data() : nullptr;
        const Losses losses{drawn_.z.data(), base, count};
        status = signed_weights(objective_.divergence, losses, blocks.each.data(), blocks.number,
                                drawn_.weights.data(), drawn_.scratch.data(), workers_);
        if (status != Status::ok) return status;
        for (size_t i = 0; i < count; ++i) {
            for (size_t c = 0; c < m; ++c) u[i * m + c] *= drawn_.weights[i];
        }
        return Status::ok;
    }

    const Objective objective_;
    const Plan& plan_;
    const Rows& X_;
    const Labels labels_;
    const Columns columns_;
    const Anchor anchor_;
    Workers& workers_;
    Shuffle shuffle_;
    Drawn drawn_;
};

}  // namespace TARGET
}  // namespace drolearn
