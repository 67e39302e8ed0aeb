#include "bound_types.hpp"

#include <cstring>

namespace drolearn::bindings {

namespace {

// The value of a name in a table of names and values.
template <class Name, class Value, size_t n>
Value value_of(const std::pair<Name, Value> (&table)[n], const std::string& name,
               const char* error) {
    for (const auto& [each, value] : table) {
        if (name == each) return value;
    }
    throw nb::value_error(error);
}

}  // namespace

// -- functions of the user -----------------------------------------------------------------------

UserFunction::UserFunction(nb::object function) : function_(std::move(function)) {
    if (!PyCapsule_CheckExact(function_.ptr())) return;
    const char* name = PyCapsule_GetName(function_.ptr());
    void* pointer = PyCapsule_GetPointer(function_.ptr(), name);
    if (!pointer) throw nb::python_error();
    const std::string signature = name ? name : "";
    if (signature == "double (double)") {
        plain_ = reinterpret_cast<double (*)(double)>(pointer);
    } else if (signature == "double (double, void *)") {
        with_data_ = reinterpret_cast<double (*)(double, void*)>(pointer);
        data_ = PyCapsule_GetContext(function_.ptr());
    } else {
        throw nb::value_error("A compiled function must have the signature double (double).");
    }
}

bool UserFunction::call(const double* x, double* out, size_t n) {
    if (plain_) {
        for (size_t i = 0; i < n; ++i) out[i] = plain_(x[i]);
        return true;
    }
    if (with_data_) {
        for (size_t i = 0; i < n; ++i) out[i] = with_data_(x[i], data_);
        return true;
    }
    return call_python(x, out, n);
}

bool UserFunction::call_python(const double* x, double* out, size_t n) {
    const nb::gil_scoped_acquire lock;
    if (PyErr_Occurred()) return false;  // an earlier call has raised
    try {
        // A copy: the function may keep its argument.
        double* copy = new double[n];
        std::memcpy(copy, x, n * sizeof(double));
        nb::capsule owner(copy, [](void* p) noexcept { delete[] static_cast<double*>(p); });
        const nb::object argument =
            nb::cast(nb::ndarray<nb::numpy, double, nb::ndim<1>>(copy, {n}, owner));
        const auto values = nb::cast<Vector>(function_(argument));
        if (values.size() != n) {
            PyErr_SetString(PyExc_ValueError, "A function returned an array of another length.");
            return false;
        }
        std::memcpy(out, values.data(), n * sizeof(double));
        return true;
    } catch (nb::python_error& error) {
        error.restore();
    } catch (const std::exception& error) {
        PyErr_SetString(PyExc_TypeError, error.what());
    }
    return false;
}

// -- divergences and losses ------------------------------------------------------------------------

PyDivergence::PyDivergence(const std::string& family, double parameter, double origin,
                           double phi_zero, double curvature, bool has_linear_pieces,
                           std::optional<nb::tuple> custom) {
    core.family = value_of(families, family, "The core has no divergence of this family.");
    core.parameter = parameter;
    core.origin = origin;
    core.phi_zero = phi_zero;
    core.curvature = curvature;
    core.has_linear_pieces = has_linear_pieces;
    const bool is_custom = core.family == Family::custom;
    require(is_custom == custom.has_value(),
            "A custom divergence needs (slope_one, phi, dphi, inverse).");
    if (!is_custom) return;
    require(custom->size() == 4, "custom must be (slope_one, phi, dphi, inverse).");
    core.slope_one = nb::cast<double>((*custom)[0]);
    core.phi = functions.add((*custom)[1]);
    core.dphi = functions.add((*custom)[2]);
    core.inverse = functions.add((*custom)[3]);
}

PyLoss::PyLoss(const std::string& kind, bool residual, double width,
               std::optional<nb::tuple> custom) {
    constexpr std::pair<const char*, LossKind> kinds[] = {
        {"logistic", LossKind::logistic},
        {"squared-hinge", LossKind::squared_hinge},
        {"smoothed-hinge", LossKind::smoothed_hinge},
        {"squared", LossKind::squared},
        {"huber", LossKind::huber},
        {"custom", LossKind::custom},
        {"multinomial", LossKind::multinomial},
    };
    core.kind = value_of(kinds, kind, "The core has no loss of this kind.");
    core.residual = residual;
    core.width = width;
    const bool is_custom = core.kind == LossKind::custom;
    require(is_custom == custom.has_value(), "A custom loss needs (value, slope).");
    if (!is_custom) return;
    require(custom->size() == 2, "custom must be (value, slope).");
    core.value = functions.add((*custom)[0]);
    core.slope = functions.add((*custom)[1]);
}

void PyLoss::check_labels(const Vector& y, size_t m) const {
    if (core.kind != LossKind::multinomial) {
        require(m == 1, "This loss takes one score for each row.");
        return;
    }
    for (size_t i = 0; i < y.size(); ++i) {
        const bool valid = y.data()[i] >= 0.0 && y.data()[i] < static_cast<double>(m);
        require(valid, "y must hold class numbers from 0 to one less than the number of scores.");
    }
}

// -- plans -------------------------------------------------------------------------------------------

PyPlan::PyPlan(const std::string& kind, int64_t n, std::pair<int64_t, double> growth,
               std::tuple<double, double, double> radius, double warm,
               std::pair<IntegerMatrix, Vector> levels, const std::optional<Groups>& given) {
    constexpr std::pair<const char*, DrawKind> kinds[] = {
        {"full", DrawKind::full},
        {"fixed", DrawKind::fixed},
        {"growing", DrawKind::growing},
        {"multilevel", DrawKind::multilevel},
    };
    core.kind = value_of(kinds, kind, "The core has no draws of this kind.");
    require(n > 0, "n must be at least 1.");
    core.n = n;
    std::tie(core.size, core.rate) = growth;
    require(core.size > 0 && core.size <= n, "size must lie between 1 and n.");
    require(core.rate >= 1.0, "rate must be at least 1.");
    std::tie(core.rho, core.inflation, core.delta) = radius;
    core.warm = warm;
    starts = {0, n};
    if (given) {
        require(core.kind != DrawKind::growing, "growing draws have no groups.");
        set_groups(*given);
    }
    if (core.kind == DrawKind::multilevel || (core.kind == DrawKind::fixed && given)) {
        set_levels(levels.first, levels.second);
    }
    core.sizes = sizes.data();
    core.corrections = corrections.data();
    core.cumulative = cumulative.data();
    core.coefficients = coefficients.data();
    core.members = members.data();
    core.starts = starts.data();
    core.group_sizes = group_sizes.data();
}

void PyPlan::set_groups(const Groups& given) {
    const auto& [of, base, rows] = given;
    require_length(of, static_cast<size_t>(core.n), "groups");
    as_grouping(of, base);  // checks both
    groups.assign(of.data(), of.data() + of.size());
    shares.assign(base.data(), base.data() + base.size());
    members.assign(rows.data(), rows.data() + rows.size());
    core.groups = {groups.data(), shares.data(), shares.size()};
    starts.assign(shares.size() + 1, 0);
    for (size_t k = 0; k < members.size(); ++k) {
        require(0 <= members[k] && members[k] < core.n, "members must be row numbers.");
        const int64_t group = groups[members[k]], last = k > 0 ? groups[members[k - 1]] : group;
        require(k == 0 || last < group || (last == group && members[k - 1] < members[k]),
                "members must be different rows, ordered by group and row.");
        ++starts[group + 1];
    }
    for (size_t g = 0; g < shares.size(); ++g) {
        require((shares[g] > 0.0) == (starts[g + 1] > 0), "groups with a share must have rows.");
        starts[g + 1] += starts[g];
    }
}

void PyPlan::set_levels(const IntegerMatrix& rows, const Vector& probabilities) {
    const size_t levels = rows.shape(0), width = starts.size() - 1;
    require(levels > 0 && rows.shape(1) == width, "sizes must have a number for each group.");
    require_length(probabilities, levels - 1, "probabilities");
    group_sizes.assign(rows.data(), rows.data() + rows.size());
    sizes.assign(levels, 0);
    corrections.assign(levels, 0);
    for (size_t k = 0; k < levels; ++k) {
        for (size_t g = 0; g < width; ++g) {
            const int64_t size = group_sizes[k * width + g], all = starts[g + 1] - starts[g];
            require(size > 0 ? size <= all : size == all,
                    "sizes must go from a positive number up to all rows.");
            if (k + 1 < levels) {
                const int64_t next = group_sizes[(k + 1) * width + g];
                // A group keeps its last row.
                const bool kept = !groups.empty() && next <= 1 && size == next;
                require(kept || size == next / 2, "each size must be half of the next.");
            } else if (core.kind == DrawKind::multilevel) {
                require(size == all, "sizes must go from a positive number up to all rows.");
            }
            sizes[k] += size;
            corrections[k] += !groups.empty() && size == 1 ? 2 : size;
        }
    }
    if (core.kind == DrawKind::fixed) {
        require(levels == 1 && sizes[0] == core.size, "size must be the number of rows.");
    }
    core.levels = levels - 1;
    double total = 0.0;
    for (size_t k = 0; k < core.levels; ++k) {
        const double q = probabilities.data()[k];
        require(q > 0.0, "probabilities must be positive.");
        total += q;
        cumulative.push_back(total);
        coefficients.push_back(1.0 / q);
    }
}

// -- rows of data ------------------------------------------------------------------------------------

PyRows::PyRows(DenseArray X) {
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

PyRows::PyRows(SparseArray data, SparseArray indices, SparseArray indptr, size_t columns) {
    for (const SparseArray& array : {data, indices, indptr}) owners.push_back(nb::cast(array));
    require(indptr.size() > 0, "indptr must not be empty.");
    require(indices.dtype() == indptr.dtype(), "indices and indptr must have the same type.");
    n = indptr.size() - 1;
    d = columns;
    if (indices.dtype() == nb::dtype<int32_t>()) {
        set_sparse<int32_t>(data, indices, indptr);
    } else if (indices.dtype() == nb::dtype<int64_t>()) {
        set_sparse<int64_t>(data, indices, indptr);
    } else {
        throw nb::type_error("indices must be int32 or int64.");
    }
}

template <class T>
Dense<T> PyRows::dense(const DenseArray& X) const {
    return {static_cast<const T*>(X.data()), n, d, static_cast<ptrdiff_t>(X.stride(0)),
            static_cast<ptrdiff_t>(X.stride(1))};
}

template <class I>
void PyRows::set_sparse(const SparseArray& data, const SparseArray& indices,
                        const SparseArray& indptr) {
    if (data.dtype() == nb::dtype<double>()) {
        core = sparse<double, I>(data, indices, indptr);
    } else if (data.dtype() == nb::dtype<float>()) {
        core = sparse<float, I>(data, indices, indptr);
    } else {
        throw nb::type_error("X must hold float32 or float64.");
    }
}

template <class T, class I>
Sparse<T, I> PyRows::sparse(const SparseArray& data, const SparseArray& indices,
                            const SparseArray& indptr) const {
    const auto* starts = static_cast<const I*>(indptr.data());
    const auto* columns = static_cast<const I*>(indices.data());
    bool valid = starts[0] == 0 && data.size() == indices.size() &&
                 static_cast<size_t>(starts[n]) <= data.size();
    for (size_t i = 0; i < n; ++i) valid &= starts[i] <= starts[i + 1];
    require(valid, "indptr must grow from 0 to the number of values.");
    I low = 0, high = -1;
    for (size_t a = 0; a < static_cast<size_t>(starts[n]); ++a) {
        low = columns[a] < low ? columns[a] : low;
        high = columns[a] > high ? columns[a] : high;
    }
    require(low >= 0 && static_cast<int64_t>(high) < static_cast<int64_t>(d),
            "indices must be column numbers.");
    return {static_cast<const T*>(data.data()), columns, starts, n, d};
}

// -- Python classes ----------------------------------------------------------------------------------

void bind_types(nb::module_& module) {
    nb::class_<PyDivergence>(module, "Divergence", "The compiled form of a divergence.")
        .def(nb::init<const std::string&, double, double, double, double, bool,
                      std::optional<nb::tuple>>(),
             "family"_a, "parameter"_a, "origin"_a, "phi_zero"_a, "curvature"_a,
             "has_linear_pieces"_a, "custom"_a.none() = nb::none())
        .def(
            "phi",
            [](const PyDivergence& divergence, double s) {
                require(s >= 0.0, "s must be at least 0.");
                const double value = portable::phi_of(divergence.core, s);
                raise_pending();
                return value;
            },
            "s"_a, "φ(s).");
    nb::class_<PyLoss>(module, "Loss", "The compiled form of a loss of one example.")
        .def(nb::init<const std::string&, bool, double, std::optional<nb::tuple>>(), "kind"_a,
             "residual"_a, "width"_a, "custom"_a.none() = nb::none());
    nb::class_<PyPlan>(module, "Plan", "The compiled form of a method of drawing rows.")
        .def(nb::init<const std::string&, int64_t, std::pair<int64_t, double>,
                      std::tuple<double, double, double>, double, std::pair<IntegerMatrix, Vector>,
                      const std::optional<PyPlan::Groups>&>(),
             "kind"_a, "n"_a, "growth"_a, "radius"_a, "warm"_a, "levels"_a.noconvert(),
             "groups"_a.noconvert().none() = nb::none())
        .def_ro("cumulative", &PyPlan::cumulative, "P(correction at level ≤ k), k = 1, 2, …")
        .def_ro("coefficients", &PyPlan::coefficients, "1 / P(level k).");
}

}  // namespace drolearn::bindings
