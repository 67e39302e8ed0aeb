// Fills the table of kernels; compiled once for each TARGET.
#include "kernels.hpp"

#include "inner.hpp"

namespace drolearn::TARGET {
namespace {

Ball ball_of(const Divergence& divergence, const OpenSearch& open) {
    return {divergence, open.frame, open.rho};
}

size_t numbers_in(const AnyRows& any) {
    return std::visit(
        [](const auto& rows) -> size_t {
            if constexpr (requires { rows.indptr; }) {
                return static_cast<size_t>(rows.indptr[rows.n]) + rows.n;
            } else {
                return rows.n * rows.d;
            }
        },
        any);
}

DrawResult as_result(std::vector<int64_t> rows, const Blocks& blocks, int64_t base) {
    const auto all = blocks.all();
    return {std::move(rows), {all.begin(), all.end()}, base};
}

const Kernels table = {
    .name = DROLEARN_TARGET_NAME,
    .solve = solve,
    .survey = survey_all,
    .begin =
        [](const Divergence& divergence, double rho, size_t n, const Survey& seen,
           const Multipliers& guess) {
            OpenSearch open{make_frame(divergence, n, seen), {}, rho < smallest_radius ? 0.0 : rho};
            open.search = begin(ball_of(divergence, open), guess);
            return open;
        },
    .sweep =
        [](const Divergence& divergence, const OpenSearch& open, const Losses& losses, double* out,
           Sums* parts, Workers& workers) {
            return sweep(ball_of(divergence, open), open.search, losses, out, parts, workers);
        },
    .join =
        [](const Divergence& divergence, const OpenSearch& open, const Sums* parts, size_t chunks) {
            return join(ball_of(divergence, open), open.search, parts, chunks);
        },
    .advance =
        [](const Divergence& divergence, OpenSearch& open, const Sums* parts, size_t chunks) {
            const Ball ball = ball_of(divergence, open);
            open.search.sums = join(ball, open.search, parts, chunks);
            advance(ball, open.search);
        },
    .conclude =
        [](const Divergence& divergence, const OpenSearch& open) {
            return conclude(ball_of(divergence, open), open.search);
        },
    .sample_stride = sample_stride,
    .second_order = second_order,
    .follow = follow,
    .weigh = weigh,
    .losses_of = losses_of,
    .bends_of = bends_of,
    .scores =
        [](const AnyRows& any, const double* theta, size_t m, double* f, Workers& workers) {
            return std::visit([&](const auto& rows) { return scores(rows, theta, m, f, workers); },
                              any);
        },
    .gradient =
        [](const AnyRows& any, const RowFactors& factors, double* out, Workers& workers) {
            return std::visit(
                [&](const auto& rows) {
                    return gradient(rows, numbers_in(any), factors, out, workers);
                },
                any);
        },
    .column_moments =
        [](const AnyRows& any, const SomeRows& some, const double* mean, const ColumnMoments& out,
           Workers& workers) {
            return std::visit(
                [&](const auto& rows) { return column_moments(rows, some, mean, out, workers); },
                any);
        },
    .scaled_rows =
        [](const AnyRows& any, const Columns& columns, size_t first, size_t count,
           const double* root, double* out) {
            std::visit(
                [&](const auto& rows) {
                    if constexpr (!requires { rows.indptr; }) {
                        scaled_rows(rows, columns, first, count, root, out);
                    }
                },
                any);
        },
    .gram =
        [](const AnyRows& any, const double* h, const double* scale, double* out,
           Workers& workers) {
            return std::visit(
                [&](const auto& rows) {
                    if constexpr (requires { rows.indptr; }) {
                        return gram(rows, h, scale, out, workers);
                    } else {
                        return true;  // for dense data, Python multiplies matrices
                    }
                },
                any);
        },
    .draw =
        [](const BitGenerator& rng, const Plan& plan, double t) {
            const Choice choice = choose(rng, plan, t);
            std::vector<int64_t> rows(static_cast<size_t>(choice.count));
            Drawer drawer(plan);
            const Blocks blocks = place(rng, plan, choice, drawer, rows.data());
            return as_result(std::move(rows), blocks, choice.base);
        },
    .draw_level =
        [](const BitGenerator& rng, const Plan& plan, size_t level) {
            const int64_t count = level == 0 ? plan.sizes[0] : plan.corrections[level];
            std::vector<int64_t> rows(static_cast<size_t>(count));
            const Blocks blocks = place_level(rng, plan, level, rows.data());
            return as_result(std::move(rows), blocks, level == 0 ? plan.sizes[0] : 0);
        },
    .signed_weights =
        [](const Divergence& divergence, const Losses& losses, const Grouping& groups,
           const std::vector<Block>& blocks, double* out, Workers& workers) {
            std::vector<double> scratch(scratch_size(losses.n, groups));
            return signed_weights(divergence, losses, groups, blocks, out, scratch.data(), workers);
        },
    .descend =
        [](const Task& task, const BitGenerator& rng, const Model& model, const Steps& steps,
           Tally& tally, Workers& workers) {
            return std::visit(
                [&](const auto& rows) {
                    Descent descent(task.objective, task.plan, rows, task.labels, task.columns,
                                    task.anchor, workers);
                    return descent.run(rng, model, steps, tally);
                },
                task.rows);
        },
    .follow_draws =
        [](const Task& task, const std::vector<DrawResult>& draws, const Model& model,
           const Steps& steps, Tally& tally, Workers& workers) {
            return std::visit(
                [&](const auto& rows) {
                    Descent descent(task.objective, task.plan, rows, task.labels, task.columns,
                                    task.anchor, workers);
                    return descent.follow(draws, model, steps, tally);
                },
                task.rows);
        },
    .step_along = step_along,
    .elementary =
        [](Elementary which, const double* x, double* out, size_t n) {
            for (size_t i = 0; i < n; ++i) {
                switch (which) {
                    case Elementary::exp: out[i] = fast_exp(x[i]); break;
                    case Elementary::expm1: out[i] = fast_expm1(x[i]); break;
                    case Elementary::log: out[i] = fast_log(x[i]); break;
                    case Elementary::log1p: out[i] = fast_log1p(x[i]); break;
                    case Elementary::expm1_minus_x: out[i] = expm1_parts(x[i]).minus_x; break;
                    case Elementary::x_minus_log1p:
                        out[i] = log1p_parts(x[i], 1.0 + x[i]).x_minus;
                        break;
                }
            }
        },
};

}  // namespace

const Kernels& get() { return table; }

}  // namespace drolearn::TARGET
