// The Python module drolearn._core.
#include "bindings.hpp"

NB_MODULE(_core, module) {
    using namespace drolearn;
    module.doc() = "The compiled core of drolearn: worst cases, losses, passes over rows, descent.";
    nanobind::set_leak_warnings(false);  // a user's function may refer to the object that owns it

    module.attr("CHUNK") = chunk_size;
    module.attr("OK") = static_cast<int>(Status::ok);
    module.attr("NOT_FINITE") = static_cast<int>(Status::not_finite);
    module.attr("NOT_SOLVED") = static_cast<int>(Status::not_solved);
    module.def(
        "target", [] { return kernels().name; },
        "The target that the kernels in use are compiled for: \"portable\", \"avx2\" or "
        "\"avx512\".");
    bindings::bind_types(module);
    bindings::bind_rows(module);
    bindings::bind_inner(module);
    bindings::bind_losses(module);
    bindings::bind_descent(module);
}
