// Bindings of the draws and of the loop of the stochastic solvers.
#include <algorithm>
#include <bit>

#include "bound_types.hpp"

namespace drolearn::bindings {
namespace {

// -- draws ---------------------------------------------------------------------------------------

// The C interface of a NumPy bit generator, from its attribute `capsule`.
const BitGenerator& generator_of(const nb::capsule& capsule) {
    void* pointer = PyCapsule_GetPointer(capsule.ptr(), "BitGenerator");
    if (!pointer) throw nb::python_error();
    return *static_cast<const BitGenerator*>(pointer);
}

// A NumPy array that owns the values.
template <class T>
nb::object as_array(std::vector<T>&& values, std::initializer_list<size_t> shape) {
    auto* moved = new std::vector<T>(std::move(values));
    nb::capsule owner(moved, [](void* p) noexcept { delete static_cast<std::vector<T>*>(p); });
    return nb::cast(nb::ndarray<nb::numpy, T>(moved->data(), shape, owner));
}

// Rows, blocks (start, stop, coefficient, radius) and the size of the base block.
nb::tuple as_tuple(DrawResult&& draw) {
    std::vector<double> blocks;
    for (const Block& block : draw.blocks) {
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
    return as_tuple(kernels().draw(generator_of(generator), plan.core, step));
}

nb::tuple draw_level(const nb::capsule& generator, const PyPlan& plan, size_t level) {
    require(level < plan.sizes.size(), "level must be one of the levels of the plan.");
    return as_tuple(kernels().draw_level(generator_of(generator), plan.core, level));
}

// -- descent -------------------------------------------------------------------------------------

using PyModel = std::pair<OutMatrix, OutMatrix>;             // theta, average
using PyAnchor = std::optional<std::pair<Matrix, Matrix>>;   // theta, drift
using PySteps = std::tuple<Vector, double, double, double>;  // gammas, clip, omega, limit
using PyDraw = std::tuple<Integers, Matrix, int64_t>;        // rows, blocks, size of the base

Model as_model(const PyModel& model, size_t d) {
    const auto& [theta, average] = model;
    require(theta.shape(0) > 0 && theta.shape(1) == d + 1,
            "theta must have one row of d + 1 numbers for each score.");
    require_length(average, theta.size(), "average");
    return {theta.data(), average.data(), theta.shape(0)};
}

Anchor as_anchor(const PyAnchor& anchor, size_t size) {
    if (!anchor) return {};
    require_length(anchor->first, size, "anchor");
    require_length(anchor->second, size, "drift");
    return {anchor->first.data(), anchor->second.data()};
}

Steps as_steps(const PySteps& steps) {
    const auto& [gammas, clip, omega, limit] = steps;
    return {gammas.data(), gammas.size(), clip, omega, limit};
}

// One step along the gradients of a base block and of a correction, with their numbers of rows.
int step_along(std::pair<Matrix, std::optional<Matrix>> gradients, std::pair<size_t, size_t> rows,
               const std::optional<Matrix>& drift, std::tuple<Vector, Vector, double> columns,
               const PyModel& model, const PySteps& steps, Tally& tally) {
    const auto& [mean, scale, l2] = columns;
    const auto& [base, correction] = gradients;
    const size_t d = mean.size(), size = model.first.size();
    const Model core = as_model(model, d);
    require_length(scale, d + 1, "scale");
    require_length(base, size, "the gradient of the base block");
    if (correction) require_length(*correction, size, "the gradient of the correction");
    require((rows.second > 0) == correction.has_value(), "a correction must have rows.");
    if (drift) require_length(*drift, size, "drift");
    require_length(std::get<0>(steps), 1, "gammas");
    require(l2 >= 0.0, "l2 must be at least 0.");
    const GivenStep given{base.data(),
                          correction ? correction->data() : nullptr,
                          rows.first,
                          rows.second,
                          d,
                          {mean.data(), scale.data()},
                          drift ? drift->data() : nullptr,
                          l2};
    return checked(kernels().step_along(given, core, as_steps(steps), tally));
}

struct PyDescent {
    // Python keeps the referenced objects alive (nb::keep_alive).
    const PyLoss& loss;
    const PyDivergence& divergence;
    const PyPlan& plan;
    const PyRows& rows;
    double l2;
    Vector y, mean, scale;
    std::optional<Vector> base, reference;

    // labels: y, base weights, losses of a reference model.
    PyDescent(std::pair<const PyLoss*, const PyDivergence*> objective, double l2,
              const PyPlan& plan, const PyRows& rows,
              std::tuple<Vector, std::optional<Vector>, std::optional<Vector>> labels,
              std::pair<Vector, Vector> columns)
        : loss(*objective.first), divergence(*objective.second), plan(plan), rows(rows), l2(l2),
          y(std::get<0>(labels)), mean(columns.first), scale(columns.second),
          base(std::get<1>(labels)), reference(std::get<2>(labels)) {
        require(static_cast<size_t>(plan.core.n) == rows.n,
                "plan must be made for the number of rows.");
        require_length(y, rows.n, "y");
        if (base) require_length(*base, rows.n, "base");
        if (reference) require_length(*reference, rows.n, "reference");
        require_length(mean, rows.d, "mean");
        require_length(scale, rows.d + 1, "scale");
        require(l2 >= 0.0, "l2 must be at least 0.");
        if (rows.is_sparse()) check_sparse_scales();
    }

    int run(const nb::capsule& generator, const PyModel& model, const PyAnchor& anchor,
            const PySteps& steps, Tally& tally) const {
        const BitGenerator& rng = generator_of(generator);
        return descend(model, anchor, [&](const Task& task, const Model& core, Workers& workers) {
            return kernels().descend(task, rng, core, as_steps(steps), tally, workers);
        });
    }

    // draws: rows, blocks and the size of the base block of each step.
    int follow(const std::vector<PyDraw>& draws, const PyModel& model, const PyAnchor& anchor,
               const PySteps& steps, Tally& tally) const {
        require(draws.size() == std::get<0>(steps).size(), "draws must have one for each step.");
        std::vector<DrawResult> list;
        for (const auto& [indices, blocks, base] : draws) {
            const auto count = static_cast<int64_t>(indices.size());
            require(0 < base && base <= count, "base blocks must have rows of the draw.");
            list.push_back({{indices.data(), indices.data() + count},
                            as_blocks(blocks, indices.size()),
                            base});
            for (const int64_t row : list.back().rows) {
                require(0 <= row && row < plan.core.n, "draws must have row numbers.");
            }
        }
        return descend(model, anchor, [&](const Task& task, const Model& core, Workers& workers) {
            return kernels().follow_draws(task, list, core, as_steps(steps), tally, workers);
        });
    }

  private:
    // Calls f with the task, the model and the workers, without the interpreter lock.
    template <class F>
    int descend(const PyModel& model, const PyAnchor& anchor, F f) const {
        const Model core = as_model(model, rows.d);
        loss.check_labels(y, core.m);
        const Anchor from = as_anchor(anchor, model.first.size());
        const Task task{
            {loss.core, divergence.core, l2},
            plan.core,
            rows.core,
            {y.data(), base ? base->data() : nullptr, reference ? reference->data() : nullptr},
            {mean.data(), scale.data()},
            from};
        const Status status = [&] {
            const nb::gil_scoped_release release;
            Workers workers(1, check_signals);
            return f(task, core, workers);
        }();
        return checked(status);
    }

    void check_sparse_scales() const {
        std::vector<double> different;
        for (size_t j = 0; j < rows.d; ++j) {
            const double value = scale.data()[j];
            const bool power = std::isfinite(value) && (std::bit_cast<uint64_t>(value) << 12) == 0;
            require(value == 0.0 || (value >= 2.3e-308 && power),
                    "scales of sparse columns must be zero or powers of two.");
            if (std::find(different.begin(), different.end(), value) == different.end()) {
                different.push_back(value);
            }
        }
        require(different.size() <= most_scales, "there are too many different scales.");
    }
};

}  // namespace

void bind_descent(nb::module_& module) {
    module.def("draw", &draw, "generator"_a, "plan"_a, "step"_a,
               "Return rows and blocks of one step.");
    module.def("draw_level", &draw_level, "generator"_a, "plan"_a, "level"_a,
               "Return a base block, or a correction not divided by its probability.");

    nb::class_<Tally>(module, "Tally", "The state of a descent besides the model.")
        .def(nb::init<>())
        .def_rw("step", &Tally::step)
        .def_rw("samples", &Tally::samples)
        .def_rw("base_norm", &Tally::base_norm)
        .def_rw("averaged", &Tally::averaged)
        .def_rw("corrections", &Tally::corrections)
        .def_rw("clipped", &Tally::clipped);
    nb::class_<PyDescent>(module, "Descent", "The loop of the stochastic solvers.")
        .def(nb::init<std::pair<const PyLoss*, const PyDivergence*>, double, const PyPlan&,
                      const PyRows&,
                      std::tuple<Vector, std::optional<Vector>, std::optional<Vector>>,
                      std::pair<Vector, Vector>>(),
             "objective"_a, "l2"_a, "plan"_a, "rows"_a, "labels"_a.noconvert(),
             "columns"_a.noconvert(), nb::keep_alive<1, 2>(), nb::keep_alive<1, 4>(),
             nb::keep_alive<1, 5>())
        .def("run", &PyDescent::run, "generator"_a, "model"_a.noconvert(),
             "anchor"_a.noconvert().none(), "steps"_a.noconvert(), "tally"_a,
             "Make steps; return a status.")
        .def("follow", &PyDescent::follow, "draws"_a.noconvert(), "model"_a.noconvert(),
             "anchor"_a.noconvert().none(), "steps"_a.noconvert(), "tally"_a,
             "Make steps with given draws; return a status.");
    module.def("step_along", &step_along, "gradients"_a.noconvert(), "rows"_a,
               "drift"_a.noconvert().none(), "columns"_a.noconvert(), "model"_a.noconvert(),
               "steps"_a.noconvert(), "tally"_a,
               "Make one step along given gradients; return a status.");
}

}  // namespace drolearn::bindings
