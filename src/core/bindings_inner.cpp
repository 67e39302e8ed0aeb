// Bindings of the worst case: solve, sweeps that the caller distributes, and derivatives.
#include <cstring>

#include "bound_types.hpp"
#include "coordinates.hpp"
#include "tails.hpp"

namespace drolearn::bindings {
namespace {

nb::tuple as_tuple(const Answer& answer) {
    return nb::make_tuple(checked(answer.status), answer.value, answer.achieved,
                          answer.multipliers.alpha, answer.multipliers.lam, answer.gap,
                          answer.sweeps);
}

nb::tuple solve(const PyDivergence& divergence, double rho, const Vector& z,
                const std::optional<Vector>& base, OutVector out, int threads) {
    const Losses losses = as_losses(z, base);
    require_length(out, losses.n, "out");
    require(rho >= 0.0, "rho must be at least 0.");
    return as_tuple(without_lock(losses.n, [&] {
        Workers workers(threads, check_signals);
        return kernels().solve(divergence.core, rho, losses, out.data(), workers);
    }));
}

// Writes the surveys of all chunks, 5 numbers each.
void survey(const Vector& z, const std::optional<Vector>& base, OutMatrix parts) {
    static_assert(sizeof(Survey) == 5 * sizeof(double));
    const Losses losses = as_losses(z, base);
    require(parts.shape(0) == chunk_count(losses.n) && parts.shape(1) == 5,
            "parts must have 5 numbers for each chunk.");
    auto* out = reinterpret_cast<Survey*>(parts.data());
    raise_if_interrupted(without_lock(losses.n, [&] {
        Workers workers(1, check_signals);
        return kernels().survey(losses, out, workers);
    }));
}

// A search whose sweeps the caller distributes. Blocks of losses may be swept anywhere if each
// block but the last is a whole number of chunks and the sums are joined in order.
struct PySearch {
    const PyDivergence& divergence;
    OpenSearch core;

    PySearch(const PyDivergence& divergence, double rho, size_t n, const Matrix& surveys,
             std::pair<double, double> guess)
        : divergence(divergence) {
        require(rho >= 0.0, "rho must be at least 0.");
        require(surveys.shape(0) > 0 && surveys.shape(1) == 5, "surveys must have 5 columns.");
        Survey total;
        const auto* parts = reinterpret_cast<const Survey*>(surveys.data());
        for (size_t k = 0; k < surveys.shape(0); ++k) total.join(parts[k]);
        require(total.finite_check == 0.0 && total.mass > 0.0,
                "losses must be finite and have a positive total weight.");
        core = kernels().begin(divergence.core, rho, n, total, {guess.first, guess.second});
        raise_pending();
    }

    PySearch(const PyDivergence& divergence, nb::bytes state) : divergence(divergence) {
        require(state.size() == sizeof(core), "The state of a search has another size.");
        std::memcpy(&core, state.c_str(), sizeof(core));
    }

    nb::bytes state() const { return nb::bytes(&core, sizeof(core)); }

    bool done() const { return core.search.phase == Phase::done; }

    // Sweeps one block of losses and writes 6 numbers for each chunk.
    void sweep(const Vector& z, const std::optional<Vector>& base, OutVector out,
               OutMatrix parts) const {
        static_assert(sizeof(Sums) == 6 * sizeof(double));
        const Losses losses = as_losses(z, base);
        require(!done(), "The search has ended.");
        require_length(out, losses.n, "out");
        require(parts.shape(0) == chunk_count(losses.n) && parts.shape(1) == 6,
                "parts must have 6 numbers for each chunk.");
        auto* sums = reinterpret_cast<Sums*>(parts.data());
        checked(without_lock(losses.n, [&] {
            Workers workers(1, check_signals);
            return kernels().sweep(divergence.core, core, losses, out.data(), sums, workers);
        }));
    }

    // Adds up the sums of some chunks, or of some blocks, in order.
    void join(const Matrix& parts, OutVector total) const {
        require(!done(), "The search has ended.");
        require(parts.shape(0) > 0 && parts.shape(1) == 6, "parts must have 6 columns.");
        require_length(total, 6, "total");
        const auto* sums = reinterpret_cast<const Sums*>(parts.data());
        const Sums joined = kernels().join(divergence.core, core, sums, parts.shape(0));
        std::memcpy(total.data(), &joined, sizeof(joined));
    }

    void advance(const Matrix& parts) {
        require(!done(), "The search has ended.");
        require(parts.shape(0) > 0 && parts.shape(1) == 6, "parts must have 6 columns.");
        const auto* sums = reinterpret_cast<const Sums*>(parts.data());
        kernels().advance(divergence.core, core, sums, parts.shape(0));
        raise_pending();
    }

    nb::tuple answer() const {
        require(done(), "The search has not ended.");
        return as_tuple(kernels().conclude(divergence.core, core));
    }
};

int signed_weights(const PyDivergence& divergence, const Vector& z,
                   const std::optional<Vector>& base, const Matrix& blocks, OutVector out,
                   const std::optional<std::pair<Integers, Vector>>& groups) {
    const Losses losses = as_losses(z, base);
    Grouping grouping;
    if (groups) {
        const auto& [of, shares] = *groups;
        require_length(of, losses.n, "groups");
        grouping = as_grouping(of, shares);
    }
    require_length(out, losses.n, "out");
    const std::vector<Block> list = as_blocks(blocks, losses.n);
    return checked(without_lock(losses.n, [&] {
        Workers workers(1, check_signals);
        return kernels().signed_weights(divergence.core, losses, grouping, list, out.data(),
                                        workers);
    }));
}

nb::tuple second_order(const PyDivergence& divergence,
                       std::pair<Vector, std::optional<Vector>> z_and_base, const Vector& p,
                       std::pair<double, double> multipliers, std::pair<Vector, Vector> derivatives,
                       OutMatrix out, int threads) {
    const Losses losses = as_losses(z_and_base.first, z_and_base.second);
    require_length(p, losses.n, "p");
    require_length(derivatives.first, losses.n, "slope");
    require_length(derivatives.second, losses.n, "bend");
    require(out.shape(0) == 3 && out.shape(1) == losses.n, "out must have 3 rows of n numbers.");
    double* first = out.data();
    const SecondOrder parts{first, first + losses.n, first + 2 * losses.n};
    const Weighted weighted{losses, p.data(), {multipliers.first, multipliers.second}};
    const Derivatives slopes{derivatives.first.data(), derivatives.second.data()};
    Inner2 matrix;
    checked(without_lock(losses.n, [&] {
        Workers workers(threads, check_signals);
        return kernels().second_order(divergence.core, weighted, slopes, parts, matrix, workers);
    }));
    return nb::make_tuple(matrix.aa, matrix.ab, matrix.bb);
}

void follow(const PyDivergence& divergence, const Vector& t, double cap, OutVector s,
            OutVector rise) {
    require_length(s, t.size(), "s");
    require_length(rise, t.size(), "rise");
    checked(without_lock(t.size(), [&] {
        return kernels().follow(divergence.core, t.data(), t.size(), cap, {s.data(), rise.data()});
    }));
}

nb::tuple weigh(const PyDivergence& divergence, const Vector& z, const Vector& base, double alpha,
                OutVector p) {
    require_length(p, z.size(), "p");
    const Losses losses = as_losses(z, base);
    Weighing weighing;
    checked(without_lock(z.size(), [&] {
        return kernels().weigh(divergence.core, losses, alpha, p.data(), weighing);
    }));
    return nb::make_tuple(weighing.lam, weighing.divergence);
}

void sort_losses(const Vector& z, OutVector out) {
    require_length(out, z.size(), "out");
    raise_if_interrupted(without_lock(z.size(), [&] {
        Workers workers(1, check_signals);
        return sort_down(z.data(), z.size(), out.data(), workers);
    }));
}

void sums_of_tails(const Vector& z, const Vector& base, OutMatrix out) {
    const Losses losses = as_losses(z, base);
    require(out.shape(0) == 5 && out.shape(1) == losses.n, "out must have 5 rows of n numbers.");
    raise_if_interrupted(without_lock(losses.n, [&] {
        Workers workers(1, check_signals);
        return tail_sums(losses, out.data(), workers);
    }));
}

size_t descend_coordinates(const Matrix& hessian, const Vector& penalty, const Vector& start,
                           OutVector step, OutVector slope, size_t sweeps, double tolerance) {
    const size_t size = start.size();
    require(hessian.shape(0) == size && hessian.shape(1) == size,
            "hessian must have one row and one column for each coordinate.");
    require_length(penalty, size, "penalty");
    require_length(step, size, "step");
    require_length(slope, size, "slope");
    const Quadratic q{hessian.data(), penalty.data(), start.data(), size};
    bool going = true;
    const size_t done = without_lock(size * size, [&] {
        Workers workers(1, check_signals);
        return coordinate_descent(q, step.data(), slope.data(), sweeps, tolerance,
                                  [&] { return going = workers.poll(); });
    });
    raise_if_interrupted(going);
    return done;
}

void elementary(const std::string& name, const Vector& x, OutVector out, bool portable) {
    constexpr std::pair<const char*, Elementary> functions[] = {
        {"exp", Elementary::exp},
        {"expm1", Elementary::expm1},
        {"log", Elementary::log},
        {"log1p", Elementary::log1p},
        {"expm1_minus_x", Elementary::expm1_minus_x},
        {"x_minus_log1p", Elementary::x_minus_log1p},
    };
    require_length(out, x.size(), "out");
    const auto& table = portable ? portable_kernels() : kernels();
    for (const auto& [known, function] : functions) {
        if (name != known) continue;
        table.elementary(function, x.data(), out.data(), x.size());
        return;
    }
    throw nb::value_error("The core has no elementary function of this name.");
}

}  // namespace

void bind_inner(nb::module_& module) {
    module.def(
        "solve", &solve, "divergence"_a, "rho"_a, "z"_a.noconvert(), "base"_a.noconvert().none(),
        "out"_a.noconvert(), "threads"_a = 1,
        "Write worst-case weights; return status, value, achieved, alpha, lam, gap, sweeps.");
    module.def("survey", &survey, "z"_a.noconvert(), "base"_a.noconvert().none(),
               "parts"_a.noconvert(), "Write the survey of each chunk of losses.");
    module.def(
        "sample_stride",
        [](const PyDivergence& divergence, size_t n) {
            return kernels().sample_stride(divergence.core, n);
        },
        "divergence"_a, "n"_a, "The stride of the subsample for the first guess; 0 for none.");
    nb::class_<PySearch>(module, "Search", "A worst case whose sweeps the caller runs.")
        .def(nb::init<const PyDivergence&, double, size_t, const Matrix&,
                      std::pair<double, double>>(),
             "divergence"_a, "rho"_a, "n"_a, "surveys"_a.noconvert(), "guess"_a,
             nb::keep_alive<1, 2>())
        .def(nb::init<const PyDivergence&, nb::bytes>(), "divergence"_a, "state"_a,
             nb::keep_alive<1, 2>())
        .def_prop_ro("state", &PySearch::state, "The complete state between two sweeps.")
        .def_prop_ro("done", &PySearch::done)
        .def("sweep", &PySearch::sweep, "z"_a.noconvert(), "base"_a.noconvert().none(),
             "out"_a.noconvert(), "parts"_a.noconvert(), "Write the sums of each chunk of a block.")
        .def("join", &PySearch::join, "parts"_a.noconvert(), "total"_a.noconvert(),
             "Write the sum of the sums of some chunks, which `advance` takes in their place.")
        .def("advance", &PySearch::advance, "parts"_a.noconvert(),
             "Prepare the next sweep from the sums of all chunks in order.")
        .def("answer", &PySearch::answer);
    module.def("signed_weights", &signed_weights, "divergence"_a, "z"_a.noconvert(),
               "base"_a.noconvert().none(), "blocks"_a.noconvert(), "out"_a.noconvert(),
               "groups"_a.noconvert().none() = nb::none(),
               "Write the sum over blocks of coefficient × worst-case weights; return a status.");
    module.def("second_order", &second_order, "divergence"_a, "losses"_a.noconvert(),
               "p"_a.noconvert(), "multipliers"_a, "derivatives"_a.noconvert(), "out"_a.noconvert(),
               "threads"_a = 1, "Write the parts of the Hessian of the robust loss.");
    module.def("follow", &follow, "divergence"_a, "t"_a.noconvert(), "cap"_a, "s"_a.noconvert(),
               "rise"_a.noconvert(), "Write the inverse of φ' and its slope.");
    module.def("weigh", &weigh, "divergence"_a, "z"_a.noconvert(), "base"_a.noconvert(), "alpha"_a,
               "p"_a.noconvert(),
               "Write the weights for a given alpha; return lambda and the divergence.");
    module.def("sort_down", &sort_losses, "z"_a.noconvert(), "out"_a.noconvert(),
               "Write losses in decreasing order.");
    module.def("tail_sums", &sums_of_tails, "z"_a.noconvert(), "base"_a.noconvert(),
               "out"_a.noconvert(), "Write Σ b (z − η)₊ʲ, j = 0 ... 4, at each of sorted losses.");
    module.def("coordinate_descent", &descend_coordinates, "hessian"_a.noconvert(),
               "penalty"_a.noconvert(), "start"_a.noconvert(), "step"_a.noconvert(),
               "slope"_a.noconvert(), "sweeps"_a, "tolerance"_a,
               "Lower a quadratic function with an l1 penalty: change the step and the slope, "
               "return the number of sweeps.");
    module.def("elementary", &elementary, "name"_a, "x"_a.noconvert(), "out"_a.noconvert(),
               "portable"_a = false, "Write an elementary function of x, for tests.");
}

}  // namespace drolearn::bindings
