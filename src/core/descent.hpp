// The loop of the stochastic solvers:
//
//     θ ← (θ − γ_t D (G_t + drift)) / (1 + γ_t D l2),    average ← average + ω γ_t θ,
//
// where G_t is the gradient of a draw (draws.hpp) and D the scale of the columns. The penalty
// enters as a proximal step, so any l2 is stable for any step size. Intercepts have no penalty.
//
// The gradient of a draw is the sum of the gradients of its base block and of its correction. A
// correction longer than clip · (mean norm of recent base gradients) · √(1 + t/100) is shortened to
// that length.
#pragma once

#include <cmath>
#include <span>
#include <vector>

#include "dense_model.hpp"
#include "draws.hpp"
#include "loss.hpp"
#include "model.hpp"
#include "rows.hpp"
#include "sparse_model.hpp"

namespace drolearn {

// What is minimised.
struct Objective {
    const Loss& loss;
    const Divergence& divergence;
    double l2;
};

// Labels, base weights and losses of a reference model of all rows; `base` is null for equal
// weights, and `reference` if there is no such model.
struct Labels {
    const double* y = nullptr;
    const double* base = nullptr;
    const double* reference = nullptr;
};

// Variance reduction: the gradients at the point θ are subtracted, and `drift`, the gradient of the
// robust loss at that point, is added. Both are null without an anchor.
struct Anchor {
    const double* theta = nullptr;
    const double* drift = nullptr;
};

// Step sizes, the clipping of corrections, the weight ω of the average, and the budget of samples.
struct Steps {
    const double* gammas = nullptr;
    size_t count = 0;
    double clip = infinity;
    double omega = 0;
    double limit = infinity;
};

// The state of the loop besides the model.
struct Tally {
    double step = 0;         // steps so far
    double samples = 0;      // rows drawn so far
    double base_norm = 0;    // mean norm of recent base gradients
    double averaged = 0;     // total weight of the average
    double corrections = 0;  // corrections so far
    double clipped = 0;      // clipped corrections so far
};

// A draw: rows, blocks, and the number of rows in the base block.
struct DrawResult {
    std::vector<int64_t> rows;
    std::vector<Block> blocks;
    int64_t base = 0;
};

// The gradients of the two parts of a draw, and their numbers of rows; without a correction, that
// is zero.
struct GivenStep {
    const double *base = nullptr, *correction = nullptr;
    size_t base_rows = 0, correction_rows = 0, d = 0;
    Columns columns;
    const double* drift = nullptr;
    double l2 = 0;
};

namespace TARGET {

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

// Buffers for the rows of one draw.
struct Drawn {
    Blocks blocks;
    std::vector<int64_t> rows, groups;
    std::vector<double> y, b, c, f, z, u, anchor_u, weights, scratch;

    void make_room(size_t count, size_t m, const Labels& labels, const Grouping& grouping) {
        if (rows.size() >= count) return;
        rows.resize(count);
        for (auto* each : {&y, &z, &weights}) each->resize(count);
        scratch.resize(scratch_size(count, grouping));
        if (grouping.of) groups.resize(count);
        if (labels.base) b.resize(count);
        if (labels.reference) c.resize(count);
        for (auto* each : {&f, &u, &anchor_u}) each->resize(count * m);
    }
};

// One step along the gradients of the parts of a draw.
template <class Stepper>
Status take_step(Stepper& stepper, const Parts& parts, double gamma, const Steps& steps,
                 Tally& tally) {
    // The mean norm of the base gradients: over all steps at first, later over about the last
    // hundred. It changes slowly, so after 100 steps only every eighth step is measured.
    const bool measured = tally.step < 100.0 || std::fmod(tally.step, 8.0) == 0.0;
    double factor = 1.0, size = 0.0;
    stepper.begin_step(gamma, parts.base);
    if (measured) {
        size = stepper.base_norm(parts.base);
        tally.base_norm += (size - tally.base_norm) / std::min(tally.step + 1.0, 100.0);
    }
    if (parts.correction.drawn.count > 0) {
        const double extra = stepper.correction_norm(parts.correction);
        const double bound = steps.clip * tally.base_norm * std::sqrt(1.0 + tally.step / 100.0);
        tally.corrections += 1.0;
        if (extra > bound) {
            factor = bound / extra;
            tally.clipped += 1.0;
        }
        size += factor * extra;
    }
    if (!(size < infinity)) return Status::not_finite;
    stepper.step(parts, gamma, factor, steps.omega);
    tally.step += 1.0;
    tally.samples += static_cast<double>(parts.base.drawn.count + parts.correction.drawn.count);
    tally.averaged += steps.omega * gamma;
    return Status::ok;
}

// One step along gradients that the caller has computed.
inline Status step_along(const GivenStep& given, const Model& model, const Steps& steps,
                         Tally& tally) {
    GivenGradients stepper(given.d, model, given.columns, given.drift, given.l2);
    const Parts parts{{{nullptr, given.base_rows}, given.base},
                      {{nullptr, given.correction_rows}, given.correction}};
    return take_step(stepper, parts, steps.gammas[0], steps, tally);
}

template <class Rows>
class Descent {
  public:
    Descent(const Objective& objective, const Plan& plan, const Rows& X, const Labels& labels,
            const Columns& columns, const Anchor& anchor, Workers& workers)
        : objective_(objective), plan_(plan), X_(X), labels_(labels), columns_(columns),
          anchor_(anchor), workers_(workers), drawer_(plan) {}

    // Makes steps with random draws. On return, the model and the tally are those after the last
    // completed step.
    Status run(const BitGenerator& rng, const Model& model, const Steps& steps, Tally& tally) {
        return make_steps(model, steps, tally, [&](size_t) {
            const Choice choice = choose(rng, plan_, tally.step);
            const auto count = static_cast<size_t>(choice.count);
            drawn_.make_room(count, model.m, labels_, plan_.groups);
            drawn_.blocks = place(rng, plan_, choice, drawer_, drawn_.rows.data());
            return Drawing{drawn_.blocks.all(), count, static_cast<size_t>(choice.base)};
        });
    }

    // Makes steps with given draws, one for each step size.
    Status follow(const std::vector<DrawResult>& draws, const Model& model, const Steps& steps,
                  Tally& tally) {
        return make_steps(model, steps, tally, [&](size_t s) {
            const DrawResult& draw = draws[s];
            drawn_.make_room(draw.rows.size(), model.m, labels_, plan_.groups);
            std::copy(draw.rows.begin(), draw.rows.end(), drawn_.rows.begin());
            return Drawing{draw.blocks, draw.rows.size(), static_cast<size_t>(draw.base)};
        });
    }

  private:
    // The signed blocks of the rows in `drawn_`, their number, and how many are in the base block.
    struct Drawing {
        std::span<const Block> blocks;
        size_t count, base;
    };

    // Makes one step for each step size; `draw` writes the rows of a step to `drawn_`.
    template <class Draw>
    Status make_steps(const Model& model, const Steps& steps, Tally& tally, Draw draw) {
        auto stepper = model_for(X_, model, columns_, anchor_.drift, objective_.l2);
        Status status = Status::ok;
        for (size_t s = 0; s < steps.count && status == Status::ok; ++s) {
            if (tally.samples >= steps.limit) break;
            if (!workers_.poll()) {
                status = Status::interrupted;
                break;
            }
            const Drawing drawing = draw(s);
            status = find_slopes(stepper, drawing, model.m);
            if (status != Status::ok) break;
            const int64_t* rows = drawn_.rows.data();
            const double* u = drawn_.u.data();
            const size_t first = drawing.base;
            const Parts parts{{{rows, first}, u},
                              {{rows + first, drawing.count - first}, u + first * model.m}};
            status = take_step(stepper, parts, steps.gammas[s], steps, tally);
        }
        stepper.finish();
        return status;
    }

    // u = signed weight × slope of the loss in the score, for each row of the draw; with an anchor,
    // minus the same there.
    template <class Stepper>
    Status find_slopes(const Stepper& stepper, const Drawing& drawing, size_t m) {
        const size_t count = drawing.count;
        const int64_t* rows = drawn_.rows.data();
        for (size_t i = 0; i < count; ++i) drawn_.y[i] = labels_.y[rows[i]];
        for (size_t i = 0; i < count && labels_.base; ++i) drawn_.b[i] = labels_.base[rows[i]];
        const double* reference = labels_.reference;
        for (size_t i = 0; i < count && reference; ++i) drawn_.c[i] = reference[rows[i]];
        const int64_t* of = plan_.groups.of;
        for (size_t i = 0; i < count && of; ++i) drawn_.groups[i] = of[rows[i]];
        const auto at_theta = [&](const DrawnRows& part, double* f) { stepper.scores(part, f); };
        const auto at_anchor = [&](const DrawnRows& part, double* f) {
            stepper.scores_at(anchor_.theta, part, f);
        };
        Status status = weighted_slopes(drawing.blocks, count, m, at_theta, drawn_.u);
        if (status == Status::ok && anchor_.theta) {
            status = weighted_slopes(drawing.blocks, count, m, at_anchor, drawn_.anchor_u);
            for (size_t i = 0; i < count * m; ++i) drawn_.u[i] -= drawn_.anchor_u[i];
        }
        return status;
    }

    // u = signed weight × slope of the loss in the score, for each row of the draw.
    template <class Scores>
    Status weighted_slopes(std::span<const Block> blocks, size_t count, size_t m, Scores scores,
                           std::vector<double>& u) {
        constexpr size_t rows_per_poll = 4096;
        for (size_t i = 0; i < count; i += rows_per_poll) {
            if (!workers_.poll()) return Status::interrupted;
            const DrawnRows part{drawn_.rows.data() + i, std::min(rows_per_poll, count - i)};
            scores(part, drawn_.f.data() + i * m);
        }
        const Scored scored{drawn_.f.data(), drawn_.y.data(), count, m};
        Status status = losses_of(objective_.loss, scored, drawn_.z.data(), u.data(), workers_);
        if (status != Status::ok) return status;
        // The weights are those of the regrets; slopes are not affected.
        for (size_t i = 0; i < count && labels_.reference; ++i) drawn_.z[i] -= drawn_.c[i];
        const double* base = labels_.base ? drawn_.b.data() : nullptr;
        const Losses losses{drawn_.z.data(), base, count};
        Grouping groups = plan_.groups;
        if (groups.of) groups.of = drawn_.groups.data();
        status = signed_weights(objective_.divergence, losses, groups, blocks,
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
    Drawer drawer_;
    Drawn drawn_;
};

}  // namespace TARGET
}  // namespace drolearn
