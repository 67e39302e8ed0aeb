// The table of all kernels. There is one table for each target that they are compiled for.
#pragma once

#include <variant>
#include <vector>

#include "descent.hpp"
#include "loss.hpp"
#include "rows.hpp"
#include "search.hpp"
#include "smooth.hpp"
#include "threads.hpp"
#include "types.hpp"

namespace drolearn {

using AnyRows =
    std::variant<Dense<float>, Dense<double>, Sparse<float, int32_t>, Sparse<float, int64_t>,
                 Sparse<double, int32_t>, Sparse<double, int64_t>>;

// The problem that a descent solves.
struct Task {
    Objective objective;
    const Plan& plan;
    const AnyRows& rows;
    Labels labels;
    Columns columns;
    Anchor anchor;
};

// A search whose sweeps are run by the caller.
struct OpenSearch {
    Frame frame;
    Search search;
    double rho;
};

enum class Elementary { exp, expm1, log, log1p, expm1_minus_x, x_minus_log1p };

struct Kernels {
    const char* name;

    // inner.hpp
    Answer (*solve)(const Divergence&, double rho, const Losses&, double* out, Workers&);
    bool (*survey)(const Losses&, Survey* parts, Workers&);
    OpenSearch (*begin)(const Divergence&, double rho, size_t n, const Survey&, const Multipliers&);
    Status (*sweep)(const Divergence&, const OpenSearch&, const Losses&, double* out, Sums* parts,
                    Workers&);
    Sums (*join)(const Divergence&, const OpenSearch&, const Sums* parts, size_t chunks);
    void (*advance)(const Divergence&, OpenSearch&, const Sums* parts, size_t chunks);
    Answer (*conclude)(const Divergence&, const OpenSearch&);
    size_t (*sample_stride)(const Divergence&, size_t n);

    // smooth.hpp
    Status (*second_order)(const Divergence&, const Weighted&, const Derivatives&,
                           const SecondOrder&, Inner2&, Workers&);
    Status (*follow)(const Divergence&, const double* t, size_t n, double cap, const InverseSlope&);
    Status (*weigh)(const Divergence&, const Losses&, double alpha, double* p, Weighing&);

    // loss.hpp
    Status (*losses_of)(const Loss&, const Scored&, double* z, double* slope, Workers&);
    Status (*bends_of)(const Loss&, const Scored&, double* out, Workers&);

    // rows.hpp
    bool (*scores)(const AnyRows&, const double* theta, size_t m, double* f, Workers&);
    bool (*gradient)(const AnyRows&, const RowFactors&, double* out, Workers&);
    bool (*column_moments)(const AnyRows&, const SomeRows&, const double* mean,
                           const ColumnMoments&, Workers&);
    void (*scaled_rows)(const AnyRows&, const Columns&, size_t first, size_t count,
                        const double* root, double* out);
    bool (*gram)(const AnyRows&, const double* h, const double* scale, double* out, Workers&);

    // draws.hpp and descent.hpp
    DrawResult (*draw)(const BitGenerator&, const Plan&, double t);
    DrawResult (*draw_level)(const BitGenerator&, const Plan&, size_t level);
    Status (*signed_weights)(const Divergence&, const Losses&, const Grouping&,
                             const std::vector<Block>&, double* out, Workers&);
    Status (*descend)(const Task&, const BitGenerator&, const Model&, const Steps&, Tally&,
                      Workers&);
    Status (*follow_draws)(const Task&, const std::vector<DrawResult>&, const Model&, const Steps&,
                           Tally&, Workers&);
    Status (*step_along)(const GivenStep&, const Model&, const Steps&, Tally&);

    // elementary.hpp
    void (*elementary)(Elementary, const double* x, double* out, size_t n);
};

// The fastest table that this processor can run.
const Kernels& kernels();

// The table that every processor can run.
const Kernels& portable_kernels();

}  // namespace drolearn
