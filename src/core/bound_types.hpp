// The Python classes Divergence, Loss, Plan and Rows, which several parts of the module use.
#pragma once

#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "bindings.hpp"

namespace drolearn::bindings {

// A Python function of arrays, or a C function of one number in a capsule.
class UserFunction {
  public:
    explicit UserFunction(nb::object function);

    ArrayFunction view() { return {apply, this}; }

  private:
    static bool apply(void* self, const double* x, double* out, size_t n) {
        return static_cast<UserFunction*>(self)->call(x, out, n);
    }

    bool call(const double* x, double* out, size_t n);
    bool call_python(const double* x, double* out, size_t n);

    nb::object function_;
    double (*plain_)(double) = nullptr;
    double (*with_data_)(double, void*) = nullptr;
    void* data_ = nullptr;
};

// Owns the functions of a divergence or a loss.
class UserFunctions {
  public:
    UserFunctions() = default;
    UserFunctions(const UserFunctions&) = delete;

    ArrayFunction add(nb::handle function) {
        functions_.push_back(std::make_unique<UserFunction>(nb::borrow(function)));
        return functions_.back()->view();
    }

  private:
    std::vector<std::unique_ptr<UserFunction>> functions_;
};

struct PyDivergence {
    Divergence core;
    UserFunctions functions;

    PyDivergence(const std::string& family, double parameter, double origin, double phi_zero,
                 double curvature, bool has_linear_pieces, std::optional<nb::tuple> custom);
};

struct PyLoss {
    Loss core;
    UserFunctions functions;

    PyLoss(const std::string& kind, bool residual, double width, std::optional<nb::tuple> custom);

    // Checks m scores per row and labels y against each other.
    void check_labels(const Vector& y, size_t m) const;
};

struct PyPlan {
    // The groups of all rows, the shares of the groups, and the rows to draw from, by group.
    using Groups = std::tuple<Integers, Vector, Integers>;

    Plan core;
    std::vector<int64_t> sizes, corrections, groups, members, starts, group_sizes;
    std::vector<double> cumulative, coefficients, shares;

    // growth: (size, rate); radius: (rho, inflation, delta); levels: the rows of each group in a
    // block of each level, one column without groups, and the probabilities of corrections.
    PyPlan(const std::string& kind, int64_t n, std::pair<int64_t, double> growth,
           std::tuple<double, double, double> radius, double warm,
           std::pair<IntegerMatrix, Vector> levels, const std::optional<Groups>& given);
    PyPlan(const PyPlan&) = delete;

  private:
    void set_groups(const Groups& given);
    void set_levels(const IntegerMatrix& rows, const Vector& probabilities);
};

struct PyRows {
    AnyRows core;
    std::vector<nb::object> owners;  // keep the arrays alive
    size_t n = 0, d = 0;

    using DenseArray = nb::ndarray<nb::ro, nb::ndim<2>, nb::device::cpu>;
    using SparseArray = nb::ndarray<nb::ro, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

    explicit PyRows(DenseArray X);
    PyRows(SparseArray data, SparseArray indices, SparseArray indptr, size_t columns);

    bool is_sparse() const { return core.index() >= 2; }

  private:
    template <class T>
    Dense<T> dense(const DenseArray& X) const;
    template <class I>
    void set_sparse(const SparseArray& data, const SparseArray& indices, const SparseArray& indptr);
    template <class T, class I>
    Sparse<T, I> sparse(const SparseArray& data, const SparseArray& indices,
                        const SparseArray& indptr) const;
};

}  // namespace drolearn::bindings
