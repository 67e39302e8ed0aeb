// The border between Python and the core: types, contiguity and lengths are checked here and
// nowhere else, the interpreter's lock is released around long calls, and states become errors.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <bit>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "kernels.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace {

using drolearn::Status;

using Vector = nb::ndarray<const double, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Matrix = nb::ndarray<const double, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
using Integers = nb::ndarray<const int64_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using OutVector = nb::ndarray<double, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using OutMatrix = nb::ndarray<double, nb::ndim<2>, nb::c_contig, nb::device::cpu>;

// -- checks and errors -------------------------------------------------------------------------

void require(bool fine, const char* message) {
    if (!fine) throw nb::value_error(message);
}

template <class Array>
void require_length(const Array& array, size_t n, const char* name) {
    if (array.size() != n) {
        throw nb::value_error((std::string(name) + " must have " + std::to_string(n) +
                               " numbers, not " + std::to_string(array.size()) + ".")
                                  .c_str());
    }
}

drolearn::Losses as_losses(const Vector& z, const std::optional<Vector>& base) {
    require(z.size() > 0, "losses must hold at least one number.");
    if (base) require_length(*base, z.size(), "base");
    return {z.data(), base ? base->data() : nullptr, z.size()};
}

// Asks Python whether a signal handler wants the call to end; it may raise any exception.
bool go_on() {
    const nb::gil_scoped_acquire lock;
    return PyErr_CheckSignals() == 0;
}

// Raises what a signal handler or a function of the user has raised.
void raise_pending() {
    if (PyErr_Occurred()) throw nb::python_error();
}

void raise_interruption(bool finished) {
    raise_pending();
    if (!finished) throw std::runtime_error("The call was interrupted.");
}

// The statuses that Python turns into sentences pass; others are exceptions already.
int passed(Status status) {
    raise_interruption(status != Status::interrupted && status != Status::callback_failed);
    return static_cast<int>(status);
}

// Calls f without the interpreter's lock, unless it is too short for that to pay.
template <class F>
auto unlocked(size_t numbers, F f) {
    if (numbers < 2048) return f();
    const nb::gil_scoped_release release;
    return f();
}

// -- functions of the user -----------------------------------------------------------------------

// A function of arrays in Python, or a C function of one number in a capsule.
class UserFunction {
  public:
    explicit UserFunction(nb::object function) : function_(std::move(function)) {
        if (!PyCapsule_CheckExact(function_.ptr())) return;
        const char* signature = PyCapsule_GetName(function_.ptr());
        void* pointer = PyCapsule_GetPointer(function_.ptr(), signature);
        if (!pointer) throw nb::python_error();
        const std::string given = signature ? signature : "";
        if (given == "double (double)") {
            plain_ = reinterpret_cast<double (*)(double)>(pointer);
        } else if (given == "double (double, void *)") {
            with_data_ = reinterpret_cast<double (*)(double, void*)>(pointer);
            data_ = PyCapsule_GetContext(function_.ptr());
        } else {
            throw nb::value_error("A compiled function must have the signature double (double).");
        }
    }

    drolearn::Function view() { return {apply, this}; }

  private:
    static bool apply(void* self, const double* x, double* out, size_t n) {
        return static_cast<UserFunction*>(self)->call(x, out, n);
    }

    bool call(const double* x, double* out, size_t n) {
        if (plain_) {
            for (size_t i = 0; i < n; ++i) out[i] = plain_(x[i]);
            return true;
        }
        if (with_data_) {
            for (size_t i = 0; i < n; ++i) out[i] = with_data_(x[i], data_);
            return true;
        }
        const nb::gil_scoped_acquire lock;
        if (PyErr_Occurred()) return false;  // an earlier call has raised
        try {
            // A copy: the function may keep its argument.
            double* copy = new double[n];
            std::memcpy(copy, x, n * sizeof(double));
            nb::capsule owner(copy, [](void* p) noexcept { delete[] static_cast<double*>(p); });
            const nb::object given =
                nb::cast(nb::ndarray<nb::numpy, double, nb::ndim<1>>(copy, {n}, owner));
            const auto found = nb::cast<Vector>(function_(given));
            if (found.size() != n) {
                PyErr_SetString(PyExc_ValueError,
                                "A function returned an array of another length.");
                return false;
            }
            std::memcpy(out, found.data(), n * sizeof(double));
            return true;
        } catch (nb::python_error& error) {
            error.restore();
        } catch (const std::exception& error) {
            PyErr_SetString(PyExc_TypeError, error.what());
        }
        return false;
    }

    nb::object function_;
    double (*plain_)(double) = nullptr;
    double (*with_data_)(double, void*) = nullptr;
    void* data_ = nullptr;
};

// A list of functions that lives as long as what uses them.
class UserFunctions {
  public:
    UserFunctions() = default;
    UserFunctions(const UserFunctions&) = delete;

    drolearn::Function add(nb::handle function) {
        each_.push_back(std::make_unique<UserFunction>(nb::borrow(function)));
        return each_.back()->view();
    }

  private:
    std::vector<std::unique_ptr<UserFunction>> each_;
};

// -- descriptions ----------------------------------------------------------------------------------

struct PyDivergence {
    drolearn::Divergence core;
    UserFunctions functions;

    PyDivergence(const std::string& family, double parameter, double origin, double phi_zero,
                 double curvature, bool straight, std::optional<nb::tuple> custom) {
        bool known = false;
        for (const auto& [name, each] : drolearn::families) {
            if (family != name) continue;
            core.family = each;
            known = true;
        }
        require(known, "The core knows no divergence of this family.");
        core.parameter = parameter;
        core.origin = origin;
        core.phi_zero = phi_zero;
        core.curvature = curvature;
        core.straight = straight;
        const bool own = core.family == drolearn::Family::custom;
        require(own == custom.has_value(),
                "A custom divergence needs (slope_one, phi, dphi, inverse).");
        if (!own) return;
        require(custom->size() == 4, "custom must be (slope_one, phi, dphi, inverse).");
        core.slope_one = nb::cast<double>((*custom)[0]);
        core.phi = functions.add((*custom)[1]);
        core.dphi = functions.add((*custom)[2]);
        core.inverse = functions.add((*custom)[3]);
    }
};

struct PyLoss {
    drolearn::Loss core;
    UserFunctions functions;

    PyLoss(const std::string& kind, bool residual, double width, std::optional<nb::tuple> custom) {
        using drolearn::LossKind;
        constexpr std::pair<const char*, LossKind> kinds[] = {
            {"logistic", LossKind::logistic},
            {"squared-hinge", LossKind::squared_hinge},
            {"smoothed-hinge", LossKind::smoothed_hinge},
            {"squared", LossKind::squared},
            {"huber", LossKind::huber},
            {"custom", LossKind::custom},
            {"multinomial", LossKind::multinomial},
        };
        bool known = false;
        for (const auto& [name, each] : kinds) {
            if (kind != name) continue;
            core.kind = each;
            known = true;
        }
        require(known, "The core knows no loss of this kind.");
        core.residual = residual;
        core.width = width;
        const bool own = core.kind == LossKind::custom;
        require(own == custom.has_value(), "A custom loss needs (value, slope).");
        if (!own) return;
        require(custom->size() == 2, "custom must be (value, slope).");
        core.value = functions.add((*custom)[0]);
        core.slope = functions.add((*custom)[1]);
    }
};

// Scores and labels that fit together.
drolearn::Scored as_scored(const PyLoss& loss, const Vector& f, const Vector& y) {
    const size_t n = y.size();
    require(n > 0, "y must hold at least one number.");
    require(f.size() > 0 && f.size() % n == 0,
            "f must hold the same number of scores for each row.");
    const size_t m = f.size() / n;
    if (loss.core.kind == drolearn::LossKind::multinomial) {
        for (size_t i = 0; i < n; ++i) {
            const bool fine = y.data()[i] >= 0.0 && y.data()[i] < static_cast<double>(m);
            require(fine,
                    "y must hold numbers of classes, from 0 to one less than there are scores.");
        }
    } else {
        require(m == 1, "This loss takes one score for each row.");
    }
    return {f.data(), y.data(), n, m};
}

struct PyPlan {
    drolearn::Plan core;
    std::vector<int64_t> sizes;
    std::vector<double> cumulative, coefficients;

    // growth: (size, rate); radius: (rho, inflation, delta).
    PyPlan(const std::string& kind, int64_t n, std::pair<int64_t, double> growth,
           std::tuple<double, double, double> radius, double warm, const Integers& levels,
           const Vector& probabilities) {
        using drolearn::DrawKind;
        require(kind == "full" || kind == "fixed" || kind == "growing" || kind == "multilevel",
                "The core knows no draws of this kind.");
        core.kind = kind == "full"      ? DrawKind::full
                    : kind == "fixed"   ? DrawKind::fixed
                    : kind == "growing" ? DrawKind::growing
                                        : DrawKind::multilevel;
        require(n > 0, "n must be at least 1.");
        core.n = n;
        std::tie(core.size, core.rate) = growth;
        require(core.size > 0 && core.size <= n, "size must lie between 1 and n.");
        require(core.rate >= 1.0, "rate must be at least 1.");
        std::tie(core.rho, core.inflation, core.delta) = radius;
        core.warm = warm;
        sizes.assign(levels.data(), levels.data() + levels.size());
        if (core.kind == DrawKind::multilevel) {
            require(!sizes.empty() && sizes.back() == n && sizes.front() > 0,
                    "sizes must go from a positive number up to n.");
            require_length(probabilities, sizes.size() - 1, "probabilities");
            for (size_t k = 1; k < sizes.size(); ++k) {
                require(sizes[k - 1] == sizes[k] / 2, "each size must be half of the next.");
            }
            core.levels = sizes.size() - 1;
        }
        double total = 0.0;
        for (size_t k = 0; k < core.levels; ++k) {
            const double q = probabilities.data()[k];
            require(q > 0.0, "probabilities must be positive.");
            total += q;
            cumulative.push_back(total);
            coefficients.push_back(1.0 / q);
        }
        core.sizes = sizes.data();
        core.cumulative = cumulative.data();
        core.coefficients = coefficients.data();
    }
    PyPlan(const PyPlan&) = delete;
};

// -- rows of data ------------------------------------------------------------------------------------

struct PyRows {
    drolearn::AnyRows core;
    std::vector<nb::object> owners;  // the arrays that the pointers lead into
    size_t n = 0, d = 0;

    explicit PyRows(nb::ndarray<nb::ro, nb::ndim<2>, nb::device::cpu> X) {
        owners.push_back(nb::cast(X));
        n = X.shape(0);
        d = X.shape(1);
        if (X.dtype() == nb::dtype<double>()) {
            core = dense<double>(X);
        } else if (X.dtype() == nb::dtype<float>()) {
            core = dense<float>(X);
        } else {
            throw nb::type_error("X must hold float32 or float64.");
        }
    }

    using Any = nb::ndarray<nb::ro, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

    PyRows(Any data, Any indices, Any indptr, size_t columns) {
        for (const Any& array : {data, indices, indptr}) owners.push_back(nb::cast(array));
        require(indptr.size() > 0, "indptr must not be empty.");
        require(indices.dtype() == indptr.dtype(), "indices and indptr must have one type.");
        n = indptr.size() - 1;
        d = columns;
        if (indices.dtype() == nb::dtype<int32_t>()) {
            sparse_by_index<int32_t>(data, indices, indptr);
        } else if (indices.dtype() == nb::dtype<int64_t>()) {
            sparse_by_index<int64_t>(data, indices, indptr);
        } else {
            throw nb::type_error("indices must be of 32 or 64 bits.");
        }
    }

    bool is_sparse() const { return core.index() >= 2; }

  private:
    template <class T, class Array>
    drolearn::Dense<T> dense(const Array& X) const {
        return {static_cast<const T*>(X.data()), n, d, static_cast<ptrdiff_t>(X.stride(0)),
                static_cast<ptrdiff_t>(X.stride(1))};
    }

    template <class I>
    void sparse_by_index(const Any& data, const Any& indices, const Any& indptr) {
        if (data.dtype() == nb::dtype<double>()) {
            core = sparse<double, I>(data, indices, indptr);
        } else if (data.dtype() == nb::dtype<float>()) {
            core = sparse<float, I>(data, indices, indptr);
        } else {
            throw nb::type_error("X must hold float32 or float64.");
        }
    }

    template <class T, class I>
    drolearn::Sparse<T, I> sparse(const Any& data, const Any& indices, const Any& indptr) const {
        const auto* starts = static_cast<const I*>(indptr.data());
        const auto* columns = static_cast<const I*>(indices.data());
        bool fine = starts[0] == 0 && data.size() == indices.size() &&
                    static_cast<size_t>(starts[n]) <= data.size();
        for (size_t i = 0; i < n; ++i) fine &= starts[i] <= starts[i + 1];
        require(fine, "indptr must grow from 0 to the number of values.");
        I low = 0, high = -1;
        for (size_t a = 0; a < static_cast<size_t>(starts[n]); ++a) {
            low = columns[a] < low ? columns[a] : low;
            high = columns[a] > high ? columns[a] : high;
        }
        require(low >= 0 && static_cast<int64_t>(high) < static_cast<int64_t>(d),
                "indices must be numbers of columns.");
        return {static_cast<const T*>(data.data()), columns, starts, n, d};
    }
};

size_t scores_in(const PyRows& rows, const Matrix& theta) {
    require(theta.shape(0) > 0 && theta.shape(1) == rows.d + 1,
            "theta must have one row of d + 1 numbers for each score.");
    return theta.shape(0);
}

void rows_scores(const PyRows& rows, const Matrix& theta, OutVector f, int threads) {
    const size_t m = scores_in(rows, theta);
    require_length(f, rows.n * m, "f");
    raise_interruption(unlocked(rows.n * rows.d, [&] {
        drolearn::Workers workers(threads, go_on);
        return drolearn::kernels().scores(rows.core, theta.data(), m, f.data(), workers);
    }));
}

void rows_gradient(const PyRows& rows, const std::optional<Vector>& p, const Vector& slope,
                   OutMatrix out, int threads) {
    require(out.shape(0) > 0 && out.shape(1) == rows.d + 1,
            "out must have one row of d + 1 numbers for each score.");
    require_length(slope, rows.n * out.shape(0), "slope");
    if (p) require_length(*p, rows.n, "p");
    const drolearn::RowFactors factors{p ? p->data() : nullptr, slope.data(), out.shape(0)};
    raise_interruption(unlocked(rows.n * rows.d, [&] {
        drolearn::Workers workers(threads, go_on);
        return drolearn::kernels().gradient(rows.core, factors, out.data(), workers);
    }));
}

// Writes sum, sum of squares and largest size of each column to the rows of `out`.
void rows_moments(const PyRows& rows, const Integers& indices, const std::optional<Vector>& base,
                  const std::optional<Vector>& mean, OutMatrix out) {
    require(out.shape(0) == 3 && out.shape(1) == rows.d, "out must have 3 rows of d numbers.");
    if (base) require_length(*base, rows.n, "base");
    if (mean) require_length(*mean, rows.d, "mean");
    for (size_t k = 0; k < indices.size(); ++k) {
        const int64_t i = indices.data()[k];
        require(i >= 0 && static_cast<size_t>(i) < rows.n, "indices must be numbers of rows.");
    }
    std::fill(out.data(), out.data() + out.size(), 0.0);
    double* first = out.data();
    const drolearn::ColumnMoments moments{first, first + rows.d, first + 2 * rows.d};
    const drolearn::SomeRows some{indices.data(), indices.size(), base ? base->data() : nullptr};
    raise_interruption(unlocked(indices.size() * rows.d, [&] {
        drolearn::Workers workers(1, go_on);
        return drolearn::kernels().column_moments(rows.core, some, mean ? mean->data() : nullptr,
                                                  moments, workers);
    }));
}

void rows_scaled(const PyRows& rows, std::pair<Vector, Vector> scaling, size_t first,
                 const Vector& root, OutMatrix out) {
    require(!rows.is_sparse(), "scaled rows are for dense data.");
    require_length(scaling.first, rows.d, "mean");
    require(scaling.second.size() >= rows.d, "scale must have a number for each column.");
    require(first <= rows.n && root.size() <= rows.n - first, "there are not as many rows.");
    require(out.shape(0) == root.size() && out.shape(1) == rows.d + 1,
            "out must have d + 1 numbers for each row.");
    unlocked(out.size(), [&] {
        drolearn::kernels().scaled_rows(rows.core, {scaling.first.data(), scaling.second.data()},
                                        first, root.size(), root.data(), out.data());
        return true;
    });
}

void rows_gram(const PyRows& rows, const Vector& h, const Vector& scale, OutMatrix out) {
    require(rows.is_sparse(), "this matrix is for sparse data.");
    require_length(h, rows.n, "h");
    require(scale.size() >= rows.d, "scale must have a number for each column.");
    require(out.shape(0) == rows.d + 1 && out.shape(1) == rows.d + 1,
            "out must have d + 1 rows and columns.");
    raise_interruption(unlocked(rows.n * rows.d, [&] {
        drolearn::Workers workers(1, go_on);
        return drolearn::kernels().gram(rows.core, h.data(), scale.data(), out.data(), workers);
    }));
}

// -- worst cases ---------------------------------------------------------------------------------------

nb::tuple as_tuple(const drolearn::Answer& answer) {
    return nb::make_tuple(passed(answer.status), answer.value, answer.achieved, answer.at.alpha,
                          answer.at.lam, answer.gap, answer.sweeps);
}

nb::tuple solve(const PyDivergence& divergence, double rho, const Vector& z,
                const std::optional<Vector>& base, OutVector out, int threads) {
    const drolearn::Losses losses = as_losses(z, base);
    require_length(out, losses.n, "out");
    require(rho >= 0.0, "rho must be at least 0.");
    return as_tuple(unlocked(losses.n, [&] {
        drolearn::Workers workers(threads, go_on);
        return drolearn::kernels().solve(divergence.core, rho, losses, out.data(), workers);
    }));
}

// Writes the surveys of all chunks, 5 numbers each.
void survey(const Vector& z, const std::optional<Vector>& base, OutMatrix parts) {
    static_assert(sizeof(drolearn::Survey) == 5 * sizeof(double));
    const drolearn::Losses losses = as_losses(z, base);
    require(parts.shape(0) == drolearn::chunk_count(losses.n) && parts.shape(1) == 5,
            "parts must have 5 numbers for each chunk.");
    auto* out = reinterpret_cast<drolearn::Survey*>(parts.data());
    raise_interruption(unlocked(losses.n, [&] {
        drolearn::Workers workers(1, go_on);
        return drolearn::kernels().survey(losses, out, workers);
    }));
}

// A search whose sweeps somebody else shares out: blocks of losses may lie anywhere, as long as
// each but the last is a whole number of chunks and their sums are joined in order.
struct PySearch {
    const PyDivergence& divergence;
    drolearn::OpenSearch core;

    PySearch(const PyDivergence& own, double rho, size_t n, const Matrix& surveys,
             std::pair<double, double> guess)
        : divergence(own) {
        require(rho >= 0.0, "rho must be at least 0.");
        require(surveys.shape(0) > 0 && surveys.shape(1) == 5, "surveys must have 5 columns.");
        drolearn::Survey total;
        const auto* parts = reinterpret_cast<const drolearn::Survey*>(surveys.data());
        for (size_t k = 0; k < surveys.shape(0); ++k) total.join(parts[k]);
        require(total.nothing == 0.0 && total.mass > 0.0, "losses must be finite and have mass.");
        core = drolearn::kernels().begin(own.core, rho, n, total, {guess.first, guess.second});
        raise_pending();
    }

    PySearch(const PyDivergence& own, nb::bytes state) : divergence(own) {
        require(state.size() == sizeof(core), "The state of a search has another size.");
        std::memcpy(&core, state.c_str(), sizeof(core));
    }

    nb::bytes state() const { return nb::bytes(&core, sizeof(core)); }

    bool done() const { return core.search.phase == drolearn::Phase::done; }

    // Does what is to be done with one block of losses: 6 numbers for each chunk.
    void sweep(const Vector& z, const std::optional<Vector>& base, OutVector out,
               OutMatrix parts) const {
        static_assert(sizeof(drolearn::Sums) == 6 * sizeof(double));
        const drolearn::Losses losses = as_losses(z, base);
        require(!done(), "The search has ended.");
        require_length(out, losses.n, "out");
        require(parts.shape(0) == drolearn::chunk_count(losses.n) && parts.shape(1) == 6,
                "parts must have 6 numbers for each chunk.");
        auto* sums = reinterpret_cast<drolearn::Sums*>(parts.data());
        passed(unlocked(losses.n, [&] {
            drolearn::Workers workers(1, go_on);
            return drolearn::kernels().sweep(divergence.core, core, losses, out.data(), sums,
                                             workers);
        }));
    }

    void advance(const Matrix& parts) {
        require(!done(), "The search has ended.");
        require(parts.shape(0) > 0 && parts.shape(1) == 6, "parts must have 6 columns.");
        const auto* sums = reinterpret_cast<const drolearn::Sums*>(parts.data());
        drolearn::kernels().advance(divergence.core, core, sums, parts.shape(0));
        raise_pending();
    }

    nb::tuple answer() const {
        require(done(), "The search has not ended.");
        return as_tuple(drolearn::kernels().conclude(divergence.core, core));
    }
};

int signed_weights(const PyDivergence& divergence, const Vector& z,
                   const std::optional<Vector>& base, const Matrix& blocks, OutVector out) {
    const drolearn::Losses losses = as_losses(z, base);
    require_length(out, losses.n, "out");
    require(blocks.shape(1) == 4, "blocks must have 4 columns.");
    std::vector<drolearn::Block> each;
    for (size_t k = 0; k < blocks.shape(0); ++k) {
        const double* row = blocks.data() + 4 * k;
        const auto n = static_cast<double>(losses.n);
        require(0.0 <= row[0] && row[0] < row[1] && row[1] <= n,
                "blocks must lie within the rows.");
        require(row[3] >= 0.0, "radii must be at least 0.");
        each.push_back({static_cast<size_t>(row[0]), static_cast<size_t>(row[1]), row[2], row[3]});
    }
    return passed(unlocked(losses.n, [&] {
        drolearn::Workers workers(1, go_on);
        return drolearn::kernels().signed_weights(divergence.core, losses, each, out.data(),
                                                  workers);
    }));
}

nb::tuple second_order(const PyDivergence& divergence,
                       std::pair<Vector, std::optional<Vector>> given, const Vector& p,
                       std::pair<double, double> multipliers, std::pair<Vector, Vector> derivatives,
                       OutMatrix out, int threads) {
    const drolearn::Losses losses = as_losses(given.first, given.second);
    require_length(p, losses.n, "p");
    require_length(derivatives.first, losses.n, "slope");
    require_length(derivatives.second, losses.n, "bend");
    require(out.shape(0) == 3 && out.shape(1) == losses.n, "out must have 3 rows of n numbers.");
    double* first = out.data();
    const drolearn::SecondOrder to{first, first + losses.n, first + 2 * losses.n};
    const drolearn::Weighted weighted{losses, p.data(), {multipliers.first, multipliers.second}};
    const drolearn::Derivatives slopes{derivatives.first.data(), derivatives.second.data()};
    drolearn::Inner2 matrix;
    passed(unlocked(losses.n, [&] {
        drolearn::Workers workers(threads, go_on);
        return drolearn::kernels().second_order(divergence.core, weighted, slopes, to, matrix,
                                                workers);
    }));
    return nb::make_tuple(matrix.aa, matrix.ab, matrix.bb);
}

void follow(const PyDivergence& divergence, const Vector& t, double cap, OutVector s,
            OutVector rise) {
    require_length(s, t.size(), "s");
    require_length(rise, t.size(), "rise");
    passed(unlocked(t.size(), [&] {
        return drolearn::kernels().follow(divergence.core, t.data(), t.size(), cap,
                                          {s.data(), rise.data()});
    }));
}

// -- losses ------------------------------------------------------------------------------------------

void losses(const PyLoss& loss, const Vector& f, const Vector& y, OutVector z, OutVector slope,
            int threads) {
    const drolearn::Scored scored = as_scored(loss, f, y);
    require_length(z, scored.n, "z");
    require_length(slope, f.size(), "slope");
    passed(unlocked(f.size(), [&] {
        drolearn::Workers workers(threads, go_on);
        return drolearn::kernels().losses_of(loss.core, scored, z.data(), slope.data(), workers);
    }));
}

void bends(const PyLoss& loss, const Vector& f, const Vector& y, OutVector out, int threads) {
    const drolearn::Scored scored = as_scored(loss, f, y);
    require(scored.m == 1, "Only losses of one score have one second derivative.");
    require_length(out, scored.n, "out");
    passed(unlocked(f.size(), [&] {
        drolearn::Workers workers(threads, go_on);
        return drolearn::kernels().bends_of(loss.core, scored, out.data(), workers);
    }));
}

// -- draws -------------------------------------------------------------------------------------------

// The C interface of one of NumPy's bit generators, from its attribute `capsule`.
const drolearn::BitGenerator& generator_of(const nb::capsule& capsule) {
    void* found = PyCapsule_GetPointer(capsule.ptr(), "BitGenerator");
    if (!found) throw nb::python_error();
    return *static_cast<const drolearn::BitGenerator*>(found);
}

template <class T>
nb::object as_array(std::vector<T>&& values, std::initializer_list<size_t> shape) {
    auto* kept = new std::vector<T>(std::move(values));
    nb::capsule owner(kept, [](void* p) noexcept { delete static_cast<std::vector<T>*>(p); });
    return nb::cast(nb::ndarray<nb::numpy, T>(kept->data(), shape, owner));
}

// Rows, blocks (start, stop, coefficient, radius) and the size of the base block.
nb::tuple as_tuple(drolearn::DrawResult&& draw) {
    std::vector<double> blocks;
    for (const drolearn::Block& block : draw.blocks) {
        blocks.push_back(static_cast<double>(block.start));
        blocks.push_back(static_cast<double>(block.stop));
        blocks.push_back(block.coefficient);
        blocks.push_back(block.radius);
    }
    const size_t count = draw.rows.size(), number = draw.blocks.size();
    return nb::make_tuple(as_array(std::move(draw.rows), {count}),
                          as_array(std::move(blocks), {number, 4}), draw.base);
}

nb::tuple draw(const nb::capsule& generator, const PyPlan& plan, double step) {
    const drolearn::BitGenerator& rng = generator_of(generator);
    return as_tuple(drolearn::kernels().draw(rng, plan.core, step));
}

nb::tuple draw_level(const nb::capsule& generator, const PyPlan& plan, size_t level) {
    require(level < plan.sizes.size(), "there are not as many levels.");
    const drolearn::BitGenerator& rng = generator_of(generator);
    return as_tuple(drolearn::kernels().draw_level(rng, plan.core, level));
}

// -- descent -----------------------------------------------------------------------------------------

struct PyDescent {
    // What is minimised, on what data; the references are kept alive by Python.
    const PyLoss& loss;
    const PyDivergence& divergence;
    const PyPlan& plan;
    const PyRows& rows;
    double l2;
    Vector y, mean, scale;
    std::optional<Vector> base;

    PyDescent(std::pair<const PyLoss*, const PyDivergence*> objective, double penalty,
              const PyPlan& own_plan, const PyRows& own_rows,
              std::pair<Vector, std::optional<Vector>> labels, std::pair<Vector, Vector> columns)
        : loss(*objective.first), divergence(*objective.second), plan(own_plan), rows(own_rows),
          l2(penalty), y(labels.first), mean(columns.first), scale(columns.second),
          base(labels.second) {
        require(static_cast<size_t>(plan.core.n) == rows.n, "plan must be for as many rows.");
        require_length(y, rows.n, "y");
        if (base) require_length(*base, rows.n, "base");
        require_length(mean, rows.d, "mean");
        require_length(scale, rows.d + 1, "scale");
        require(l2 >= 0.0, "l2 must be at least 0.");
        if (!rows.is_sparse()) return;
        std::vector<double> different;
        for (size_t j = 0; j < rows.d; ++j) {
            const double own = scale.data()[j];
            const bool power = std::isfinite(own) && (std::bit_cast<uint64_t>(own) << 12) == 0;
            require(own == 0.0 || (own >= 2.3e-308 && power),
                    "scales of sparse columns must be zero or powers of two.");
            if (std::find(different.begin(), different.end(), own) == different.end()) {
                different.push_back(own);
            }
        }
        require(different.size() <= drolearn::most_scales, "there are too many different scales.");
    }

    // anchor: (theta, drift) or None; steps: (gammas, clip, omega, limit).
    int run(const nb::capsule& generator, std::pair<OutMatrix, OutMatrix> model,
            std::optional<std::pair<Matrix, Matrix>> anchor,
            std::tuple<Vector, double, double, double> steps, drolearn::Tally& tally) const {
        const auto& [theta, average] = model;
        const size_t m = theta.shape(0);
        require(m > 0 && theta.shape(1) == rows.d + 1,
                "theta must have one row of d + 1 numbers for each score.");
        require_length(average, theta.size(), "average");
        if (loss.core.kind == drolearn::LossKind::multinomial) {
            for (size_t i = 0; i < rows.n; ++i) {
                const bool fine = y.data()[i] >= 0.0 && y.data()[i] < static_cast<double>(m);
                require(fine, "y must hold numbers of classes.");
            }
        } else {
            require(m == 1, "This loss takes one score for each row.");
        }
        if (anchor) {
            require_length(anchor->first, theta.size(), "anchor");
            require_length(anchor->second, theta.size(), "drift");
        }
        const auto& [gammas, clip, omega, limit] = steps;
        const drolearn::BitGenerator& rng = generator_of(generator);
        const drolearn::Task task{
            {loss.core, divergence.core, l2},
            plan.core,
            rows.core,
            {y.data(), base ? base->data() : nullptr},
            {mean.data(), scale.data()},
            {anchor ? anchor->first.data() : nullptr, anchor ? anchor->second.data() : nullptr}};
        const drolearn::Steps own{gammas.data(), gammas.size(), clip, omega, limit};
        const drolearn::Model moving{theta.data(), average.data(), m};
        const Status status = [&] {
            const nb::gil_scoped_release release;
            drolearn::Workers workers(1, go_on);
            return drolearn::kernels().descend(task, rng, moving, own, tally, workers);
        }();
        return passed(status);
    }
};

void elementary(const std::string& name, const Vector& x, OutVector out, bool portable) {
    using drolearn::Elementary;
    require_length(out, x.size(), "out");
    const Elementary which = name == "exp"     ? Elementary::exp
                             : name == "expm1" ? Elementary::expm1
                             : name == "log"   ? Elementary::log
                                               : Elementary::log1p;
    const auto& table = portable ? drolearn::portable_kernels() : drolearn::kernels();
    table.elementary(which, x.data(), out.data(), x.size());
}

}  // namespace

NB_MODULE(_core, module) {
    module.doc() = "The compiled core of drolearn: worst cases, losses, passes over rows, descent.";
    nb::set_leak_warnings(false);  // functions of the user may refer to what holds them

    module.attr("CHUNK") = drolearn::chunk_size;
    module.attr("OK") = static_cast<int>(Status::ok);
    module.attr("NOT_FINITE") = static_cast<int>(Status::not_finite);
    module.attr("NOT_SOLVED") = static_cast<int>(Status::not_solved);
    module.def(
        "target", [] { return drolearn::kernels().name; },
        "The processors that the kernels in use are compiled for.");

    nb::class_<PyDivergence>(module, "Divergence", "A divergence as the core sees it.")
        .def(nb::init<const std::string&, double, double, double, double, bool,
                      std::optional<nb::tuple>>(),
             "family"_a, "parameter"_a, "origin"_a, "phi_zero"_a, "curvature"_a, "straight"_a,
             "custom"_a.none() = nb::none())
        .def(
            "phi",
            [](const PyDivergence& own, double s) {
                require(s >= 0.0, "s must be at least 0.");
                const double value = drolearn::portable::phi_of(own.core, s);
                raise_pending();
                return value;
            },
            "s"_a, "φ(s).");
    nb::class_<PyLoss>(module, "Loss", "A loss of one example as the core sees it.")
        .def(nb::init<const std::string&, bool, double, std::optional<nb::tuple>>(), "kind"_a,
             "residual"_a, "width"_a, "custom"_a.none() = nb::none());
    nb::class_<PyPlan>(module, "Plan", "A way to draw rows as the core sees it.")
        .def(nb::init<const std::string&, int64_t, std::pair<int64_t, double>,
                      std::tuple<double, double, double>, double, const Integers&, const Vector&>(),
             "kind"_a, "n"_a, "growth"_a, "radius"_a, "warm"_a, "sizes"_a.noconvert(),
             "probabilities"_a.noconvert())
        .def_ro("cumulative", &PyPlan::cumulative, "P(correction at level ≤ k), k = 1, 2, …")
        .def_ro("coefficients", &PyPlan::coefficients, "1 / P(level k).");

    nb::class_<PyRows>(module, "Rows", "Rows of data, read in place.")
        .def(nb::init<nb::ndarray<nb::ro, nb::ndim<2>, nb::device::cpu>>(), "X"_a.noconvert())
        .def(nb::init<PyRows::Any, PyRows::Any, PyRows::Any, size_t>(), "data"_a.noconvert(),
             "indices"_a.noconvert(), "indptr"_a.noconvert(), "columns"_a)
        .def("scores", &rows_scores, "theta"_a.noconvert(), "f"_a.noconvert(), "threads"_a = 1,
             "Write X w + c of all rows.")
        .def("gradient", &rows_gradient, "p"_a.noconvert().none(), "slope"_a.noconvert(),
             "out"_a.noconvert(), "threads"_a = 1, "Write the sum of p · slope · (x, 1).")
        .def("moments", &rows_moments, "indices"_a.noconvert(), "base"_a.noconvert().none(),
             "mean"_a.noconvert().none(), "out"_a.noconvert(),
             "Write sum, sum of squares and largest size of each column.")
        .def("scaled", &rows_scaled, "scaling"_a.noconvert(), "first"_a, "root"_a.noconvert(),
             "out"_a.noconvert(), "Write root · ((x − mean) · scale, 1).")
        .def("gram", &rows_gram, "h"_a.noconvert(), "scale"_a.noconvert(), "out"_a.noconvert(),
             "Add the lower half of the weighted Gram matrix of sparse rows.");

    module.def("solve", &solve, "divergence"_a, "rho"_a, "z"_a.noconvert(),
               "base"_a.noconvert().none(), "out"_a.noconvert(), "threads"_a = 1,
               "Write worst-case weights; status, value, achieved, alpha, lam, gap and sweeps.");
    module.def("survey", &survey, "z"_a.noconvert(), "base"_a.noconvert().none(),
               "parts"_a.noconvert(), "Write the survey of each chunk of losses.");
    module.def(
        "sample_stride",
        [](const PyDivergence& divergence, size_t n) {
            return drolearn::kernels().sample_stride(divergence.core, n);
        },
        "divergence"_a, "n"_a, "Every how many losses a first guess is made from.");
    nb::class_<PySearch>(module, "Search", "A worst case sweep by sweep.")
        .def(nb::init<const PyDivergence&, double, size_t, const Matrix&,
                      std::pair<double, double>>(),
             "divergence"_a, "rho"_a, "n"_a, "surveys"_a.noconvert(), "guess"_a,
             nb::keep_alive<1, 2>())
        .def(nb::init<const PyDivergence&, nb::bytes>(), "divergence"_a, "state"_a,
             nb::keep_alive<1, 2>())
        .def_prop_ro("state", &PySearch::state, "All that the next sweep depends on.")
        .def_prop_ro("done", &PySearch::done)
        .def("sweep", &PySearch::sweep, "z"_a.noconvert(), "base"_a.noconvert().none(),
             "out"_a.noconvert(), "parts"_a.noconvert(), "Write the sums of each chunk of a block.")
        .def("advance", &PySearch::advance, "parts"_a.noconvert(),
             "Go on with the sums of all chunks, in order.")
        .def("answer", &PySearch::answer);
    module.def("signed_weights", &signed_weights, "divergence"_a, "z"_a.noconvert(),
               "base"_a.noconvert().none(), "blocks"_a.noconvert(), "out"_a.noconvert(),
               "Write the sum over blocks of coefficient × worst-case weights; a status.");
    module.def("second_order", &second_order, "divergence"_a, "losses"_a.noconvert(),
               "p"_a.noconvert(), "multipliers"_a, "derivatives"_a.noconvert(), "out"_a.noconvert(),
               "threads"_a = 1, "Write what the Hessian of the robust loss needs.");
    module.def("follow", &follow, "divergence"_a, "t"_a.noconvert(), "cap"_a, "s"_a.noconvert(),
               "rise"_a.noconvert(), "Write the inverse of φ' and its slope.");

    module.def("losses", &losses, "loss"_a, "f"_a.noconvert(), "y"_a.noconvert(), "z"_a.noconvert(),
               "slope"_a.noconvert(), "threads"_a = 1,
               "Write losses and their slopes in the scores.");
    module.def("bends", &bends, "loss"_a, "f"_a.noconvert(), "y"_a.noconvert(), "out"_a.noconvert(),
               "threads"_a = 1, "Write second derivatives in the scores.");

    module.def("draw", &draw, "generator"_a, "plan"_a, "step"_a, "Rows and blocks of one step.");
    module.def("draw_level", &draw_level, "generator"_a, "plan"_a, "level"_a,
               "A base block, or a correction that is not divided by its probability.");

    nb::class_<drolearn::Tally>(module, "Tally", "What lives on from step to step.")
        .def(nb::init<>())
        .def_rw("step", &drolearn::Tally::step)
        .def_rw("samples", &drolearn::Tally::samples)
        .def_rw("base_norm", &drolearn::Tally::base_norm)
        .def_rw("averaged", &drolearn::Tally::averaged)
        .def_rw("corrections", &drolearn::Tally::corrections)
        .def_rw("clipped", &drolearn::Tally::clipped);
    nb::class_<PyDescent>(module, "Descent", "The loop of the stochastic methods.")
        .def(nb::init<std::pair<const PyLoss*, const PyDivergence*>, double, const PyPlan&,
                      const PyRows&, std::pair<Vector, std::optional<Vector>>,
                      std::pair<Vector, Vector>>(),
             "objective"_a, "l2"_a, "plan"_a, "rows"_a, "labels"_a.noconvert(),
             "columns"_a.noconvert(), nb::keep_alive<1, 2>(), nb::keep_alive<1, 4>(),
             nb::keep_alive<1, 5>())
        .def("run", &PyDescent::run, "generator"_a, "model"_a.noconvert(),
             "anchor"_a.noconvert().none(), "steps"_a.noconvert(), "tally"_a,
             "Make some steps; a status.");

    module.def("elementary", &elementary, "name"_a, "x"_a.noconvert(), "out"_a.noconvert(),
               "portable"_a = false, "Write exp, expm1, log or log1p, for tests.");
}
