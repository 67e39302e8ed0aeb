// Bindings of the passes over rows of data, and of the losses of single examples.
#include <cmath>
#include <variant>

#include "bound_types.hpp"
#include "coordinates.hpp"

namespace drolearn::bindings {
namespace {

void require_rows(const Integers& indices, size_t n) {
    const auto is_row = [n](int64_t i) { return i >= 0 && static_cast<size_t>(i) < n; };
    require(std::all_of(indices.data(), indices.data() + indices.size(), is_row),
            "indices must be row numbers.");
}

// -- rows ----------------------------------------------------------------------------------------

void scores(const PyRows& rows, const Matrix& theta, OutVector f, int threads) {
    require(theta.shape(0) > 0 && theta.shape(1) == rows.d + 1,
            "theta must have one row of d + 1 numbers for each score.");
    const size_t m = theta.shape(0);
    require_length(f, rows.n * m, "f");
    raise_if_interrupted(without_lock(rows.n * rows.d, [&] {
        Workers workers(threads, check_signals);
        return kernels().scores(rows.core, theta.data(), m, f.data(), workers);
    }));
}

void gradient(const PyRows& rows, const std::optional<Vector>& p, const Vector& slope,
              OutMatrix out, int threads) {
    require(out.shape(0) > 0 && out.shape(1) == rows.d + 1,
            "out must have one row of d + 1 numbers for each score.");
    require_length(slope, rows.n * out.shape(0), "slope");
    if (p) require_length(*p, rows.n, "p");
    const RowFactors factors{p ? p->data() : nullptr, slope.data(), out.shape(0)};
    raise_if_interrupted(without_lock(rows.n * rows.d, [&] {
        Workers workers(threads, check_signals);
        return kernels().gradient(rows.core, factors, out.data(), workers);
    }));
}

// Writes sum, sum of squares and largest absolute value of each column to the rows of `out`.
void moments(const PyRows& rows, const Integers& indices, const std::optional<Vector>& base,
             const std::optional<Vector>& mean, OutMatrix out) {
    require(out.shape(0) == 3 && out.shape(1) == rows.d, "out must have 3 rows of d numbers.");
    if (base) require_length(*base, rows.n, "base");
    if (mean) require_length(*mean, rows.d, "mean");
    require_rows(indices, rows.n);
    std::fill(out.data(), out.data() + out.size(), 0.0);
    double* first = out.data();
    const ColumnMoments moments{first, first + rows.d, first + 2 * rows.d};
    const SomeRows some{indices.data(), indices.size(), base ? base->data() : nullptr};
    raise_if_interrupted(without_lock(indices.size() * rows.d, [&] {
        Workers workers(1, check_signals);
        return kernels().column_moments(rows.core, some, mean ? mean->data() : nullptr, moments,
                                        workers);
    }));
}

void scaled(const PyRows& rows, std::pair<Vector, Vector> scaling, size_t first, const Vector& root,
            OutMatrix out) {
    require(!rows.is_sparse(), "scaled is for dense data only.");
    require_length(scaling.first, rows.d, "mean");
    require(scaling.second.size() >= rows.d, "scale must have a number for each column.");
    require(first <= rows.n && root.size() <= rows.n - first,
            "first and root must not go beyond the last row.");
    require(out.shape(0) == root.size() && out.shape(1) == rows.d + 1,
            "out must have d + 1 numbers for each row.");
    without_lock(out.size(), [&] {
        kernels().scaled_rows(rows.core, {scaling.first.data(), scaling.second.data()}, first,
                              root.size(), root.data(), out.data());
        return true;
    });
}

void gram(const PyRows& rows, const Vector& h, const Vector& scale, OutMatrix out) {
    require(rows.is_sparse(), "gram is for sparse data only.");
    require_length(h, rows.n, "h");
    require(scale.size() >= rows.d, "scale must have a number for each column.");
    require(out.shape(0) == rows.d + 1 && out.shape(1) == rows.d + 1,
            "out must have d + 1 rows and columns.");
    raise_if_interrupted(without_lock(rows.n * rows.d, [&] {
        Workers workers(1, check_signals);
        return kernels().gram(rows.core, h.data(), scale.data(), out.data(), workers);
    }));
}

// -- coordinate descent on columns -----------------------------------------------------------------

// Rows of a transposed matrix: its columns.
template <class F>
auto of_columns(const PyRows& columns, F f) {
    return std::visit(
        [&](const auto& rows) -> double {
            if constexpr (requires { rows.indptr; }) {
                return f(rows);
            } else {
                throw nb::value_error("Coordinate descent on columns is for sparse data only.");
            }
        },
        columns.core);
}

void column_squares(const PyRows& columns, const Vector& h, const Integers& some, OutVector out) {
    require_length(h, columns.d, "h");
    require_length(out, some.size(), "out");
    require_rows(some, columns.n);
    of_columns(columns, [&](const auto& rows) {
        return without_lock(h.size(), [&] {
            for (size_t k = 0; k < some.size(); ++k) {
                const auto j = static_cast<size_t>(some.data()[k]);
                const auto last = static_cast<size_t>(rows.indptr[j + 1]);
                double total = 0.0;
                for (auto a = static_cast<size_t>(rows.indptr[j]); a < last; ++a) {
                    const auto x = static_cast<double>(rows.data[a]);
                    total += h.data()[rows.indices[a]] * x * x;
                }
                out.data()[k] = total;
            }
            return 0.0;
        });
    });
}

using Vectors = std::tuple<Vector, Vector, Vector>;

double sweep(const PyRows& columns, const std::tuple<Vector, Vector, Vector, Vector>& hessian,
             const std::pair<Matrix, Matrix>& low_rank, const Vectors& function,
             const Integers& coordinates, const std::tuple<OutVector, OutVector, OutVector>& at) {
    const auto& [weights, scale, curvature, quadratic] = hessian;
    const auto& [sides, inner] = low_rank;
    const auto& [gradient, penalty, start] = function;
    const auto& [step, bent, sums] = at;
    const size_t size = columns.n + 1, rank = inner.shape(0);
    require_length(weights, columns.d, "weights");
    require_length(bent, columns.d, "bent");
    for (const Vector* vector : {&scale, &curvature, &quadratic, &gradient, &penalty, &start}) {
        require_length(*vector, size, "each vector of coordinates");
    }
    require_length(step, size, "step");
    require_length(sums, rank, "sums");
    require(inner.shape(1) == rank && sides.shape(0) == size && sides.shape(1) == rank,
            "sides must have one row for each coordinate, and inner must be square.");
    require_rows(coordinates, size);
    const SparseQuadratic q{
        weights.data(), scale.data(), curvature.data(), quadratic.data(), sides.data(),
        inner.data(),   rank,         gradient.data(),  penalty.data(),   start.data()};
    const SparseStep state{step.data(), bent.data(), sums.data()};
    const double decrease = of_columns(columns, [&](const auto& rows) {
        return without_lock(columns.d, [&] {
            Workers workers(1, check_signals);
            return sweep_columns(rows, q, coordinates.data(), coordinates.size(), state,
                                 [&] { return workers.poll(); });
        });
    });
    raise_if_interrupted(decrease >= 0.0 || std::isnan(decrease));
    return decrease;
}

// -- losses --------------------------------------------------------------------------------------

// Scores and labels, checked against each other.
Scored as_scored(const PyLoss& loss, const Vector& f, const Vector& y) {
    const size_t n = y.size();
    require(n > 0, "y must hold at least one number.");
    require(f.size() > 0 && f.size() % n == 0,
            "f must hold the same number of scores for each row.");
    const size_t m = f.size() / n;
    loss.check_labels(y, m);
    return {f.data(), y.data(), n, m};
}

void losses(const PyLoss& loss, const Vector& f, const Vector& y, OutVector z, OutVector slope,
            int threads) {
    const Scored scored = as_scored(loss, f, y);
    require_length(z, scored.n, "z");
    require_length(slope, f.size(), "slope");
    checked(without_lock(f.size(), [&] {
        Workers workers(threads, check_signals);
        return kernels().losses_of(loss.core, scored, z.data(), slope.data(), workers);
    }));
}

void bends(const PyLoss& loss, const Vector& f, const Vector& y, OutVector out, int threads) {
    const Scored scored = as_scored(loss, f, y);
    require(scored.m == 1, "Second derivatives are for losses of one score.");
    require_length(out, scored.n, "out");
    checked(without_lock(f.size(), [&] {
        Workers workers(threads, check_signals);
        return kernels().bends_of(loss.core, scored, out.data(), workers);
    }));
}

}  // namespace

void bind_rows(nb::module_& module) {
    nb::class_<PyRows>(module, "Rows", "Rows of data, used without a copy.")
        .def(nb::init<PyRows::DenseArray>(), "X"_a.noconvert())
        .def(nb::init<PyRows::SparseArray, PyRows::SparseArray, PyRows::SparseArray, size_t>(),
             "data"_a.noconvert(), "indices"_a.noconvert(), "indptr"_a.noconvert(), "columns"_a)
        .def("scores", &scores, "theta"_a.noconvert(), "f"_a.noconvert(), "threads"_a = 1,
             "Write the scores X w + c of all rows.")
        .def("gradient", &gradient, "p"_a.noconvert().none(), "slope"_a.noconvert(),
             "out"_a.noconvert(), "threads"_a = 1, "Write the sum of p · slope · (x, 1).")
        .def("moments", &moments, "indices"_a.noconvert(), "base"_a.noconvert().none(),
             "mean"_a.noconvert().none(), "out"_a.noconvert(),
             "Write sum, sum of squares and largest absolute value of each column.")
        .def("scaled", &scaled, "scaling"_a.noconvert(), "first"_a, "root"_a.noconvert(),
             "out"_a.noconvert(), "Write root · ((x − mean) · scale, 1).")
        .def("gram", &gram, "h"_a.noconvert(), "scale"_a.noconvert(), "out"_a.noconvert(),
             "Add the lower triangle of the weighted Gram matrix of sparse rows.")
        .def("squares", &column_squares, "h"_a.noconvert(), "some"_a.noconvert(),
             "out"_a.noconvert(), "Write Σ h x² of some sparse rows.")
        .def("coordinate_sweep", &sweep, "hessian"_a, "low_rank"_a, "function"_a,
             "coordinates"_a.noconvert(), "at"_a,
             "Lower a quadratic function with an l1 penalty, whose coordinates are these sparse "
             "rows: change step, bent and sums, return a bound of the decrease.");
}

void bind_losses(nb::module_& module) {
    module.def("losses", &losses, "loss"_a, "f"_a.noconvert(), "y"_a.noconvert(), "z"_a.noconvert(),
               "slope"_a.noconvert(), "threads"_a = 1,
               "Write losses and their slopes in the scores.");
    module.def("bends", &bends, "loss"_a, "f"_a.noconvert(), "y"_a.noconvert(), "out"_a.noconvert(),
               "threads"_a = 1, "Write second derivatives of losses in the scores.");
}

}  // namespace drolearn::bindings
