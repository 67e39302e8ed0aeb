// Common parts of the bindings: array types, checks of arguments, errors and the interpreter lock.
//
// The bindings check types, contiguity and lengths of all arguments; the core does not check them
// again. Long calls release the interpreter lock. A status of the core becomes an exception or a
// number that Python code turns into an error message.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "kernels.hpp"

namespace drolearn::bindings {

namespace nb = nanobind;
using namespace nb::literals;

using Vector = nb::ndarray<const double, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Matrix = nb::ndarray<const double, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
using Integers = nb::ndarray<const int64_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using IntegerMatrix = nb::ndarray<const int64_t, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
using OutVector = nb::ndarray<double, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using OutMatrix = nb::ndarray<double, nb::ndim<2>, nb::c_contig, nb::device::cpu>;

// -- checks ------------------------------------------------------------------------------------

inline void require(bool condition, const char* message) {
    if (!condition) throw nb::value_error(message);
}

template <class Array>
void require_length(const Array& array, size_t n, const char* name) {
    if (array.size() != n) {
        throw nb::value_error((std::string(name) + " must have " + std::to_string(n) +
                               " numbers, not " + std::to_string(array.size()) + ".")
                                  .c_str());
    }
}

inline Losses as_losses(const Vector& z, const std::optional<Vector>& base) {
    require(z.size() > 0, "losses must hold at least one number.");
    if (base) require_length(*base, z.size(), "base");
    return {z.data(), base ? base->data() : nullptr, z.size()};
}

// The groups of rows, numbers from 0, and their base shares.
inline Grouping as_grouping(const Integers& of, const Vector& shares) {
    const auto number = static_cast<int64_t>(shares.size());
    const auto is_group = [number](int64_t g) { return 0 <= g && g < number; };
    require(std::all_of(of.data(), of.data() + of.size(), is_group),
            "groups must be numbers from 0 to one less than the number of shares.");
    const auto is_share = [](double share) { return share >= 0.0 && share < infinity; };
    require(std::all_of(shares.data(), shares.data() + shares.size(), is_share),
            "shares must be finite and at least 0.");
    return {of.data(), shares.data(), shares.size()};
}

// Signed blocks of n rows: start, stop, coefficient and radius.
inline std::vector<Block> as_blocks(const Matrix& blocks, size_t n) {
    require(blocks.shape(1) == 4, "blocks must have 4 columns.");
    std::vector<Block> list;
    for (size_t k = 0; k < blocks.shape(0); ++k) {
        const double* row = blocks.data() + 4 * k;
        require(0.0 <= row[0] && row[0] < row[1] && row[1] <= static_cast<double>(n),
                "blocks must lie within the rows.");
        require(row[3] >= 0.0, "radii must be at least 0.");
        list.push_back({static_cast<size_t>(row[0]), static_cast<size_t>(row[1]), row[2], row[3]});
    }
    return list;
}

// -- errors and signals ------------------------------------------------------------------------

// Runs Python's signal handlers; false if one has raised an exception.
inline bool check_signals() {
    const nb::gil_scoped_acquire lock;
    return PyErr_CheckSignals() == 0;
}

// Throws the exception that a signal handler or a user's function has raised, if any.
inline void raise_pending() {
    if (PyErr_Occurred()) throw nb::python_error();
}

inline void raise_if_interrupted(bool finished) {
    raise_pending();
    if (!finished) throw std::runtime_error("The call was interrupted.");
}

// Throws for statuses that are exceptions, and returns the others as numbers.
inline int checked(Status status) {
    raise_if_interrupted(status != Status::interrupted && status != Status::callback_failed);
    return static_cast<int>(status);
}

// Calls f without the interpreter lock. Short calls keep it: releasing it would take longer.
template <class F>
auto without_lock(size_t numbers, F f) {
    if (numbers < 2048) return f();
    const nb::gil_scoped_release release;
    return f();
}

// -- the parts of the module -------------------------------------------------------------------

void bind_types(nb::module_& module);
void bind_rows(nb::module_& module);
void bind_inner(nb::module_& module);
void bind_losses(nb::module_& module);
void bind_descent(nb::module_& module);

}  // namespace drolearn::bindings
