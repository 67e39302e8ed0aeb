// The coefficients of a model on dense data, and the steps of a descent; also along gradients that
// the caller has computed.
#pragma once

#include <cmath>
#include <vector>

#include "model.hpp"
#include "rows.hpp"

namespace drolearn::TARGET {

// Steps along the gradients of the two parts of a draw, which a subclass computes.
class DenseSteps {
  public:
    DenseSteps(size_t d, const Model& model, const Columns& columns, const double* drift, double l2)
        : model_(model), width_(d + 1), base_(model.m * (d + 1), 0.0),
          correction_(model.m * (d + 1), 0.0), columns_(columns), drift_(drift), l2_(l2) {}

    double base_norm(const Part&) { return norm(base_); }

    // One step along base + factor · correction. Resets both gradients to zero.
    void step(const Parts&, double gamma, double factor, double omega) {
        const size_t d = width_ - 1;
        const double *mean = columns_.mean, *scale = columns_.scale;
        for (size_t c = 0; c < model_.m; ++c) {
            double *w = model_.theta + c * width_, *total = model_.average + c * width_;
            double *g = base_.data() + c * width_, *more = correction_.data() + c * width_;
            const double* drift = drift_ ? drift_ + c * width_ : nullptr;
            const double intercept = g[d] + factor * more[d];
            double shift = 0.0;
#pragma omp simd reduction(+ : shift)
            for (size_t j = 0; j < d; ++j) {
                double slope = g[j] + factor * more[j] - mean[j] * intercept;
                if (drift) slope += drift[j];
                const double size = gamma * scale[j];
                const double next = (w[j] - size * slope) / (1.0 + size * l2_);
                shift += mean[j] * (w[j] - next);
                w[j] = next;
                total[j] += omega * gamma * next;
                g[j] = 0.0;
                more[j] = 0.0;
            }
            // The columns are centred: changing w[j] by δ changes the intercept by −mean[j] δ.
            w[d] += shift - gamma * scale[d] * (intercept + (drift ? drift[d] : 0.0));
            total[d] += omega * gamma * w[d];
            g[d] = more[d] = 0.0;
        }
    }

    void finish() {}

  protected:
    // The norm of a gradient in the metric of the steps: √(Σ D (g − mean · g_intercept)²).
    double norm(const std::vector<double>& gradient) const {
        const double *mean = columns_.mean, *scale = columns_.scale;
        double total = 0.0;
        for (size_t c = 0; c < model_.m; ++c) {
            const double* g = gradient.data() + c * width_;
            const double intercept = g[width_ - 1];
            double part = 0.0;
#pragma omp simd reduction(+ : part)
            for (size_t j = 0; j < width_ - 1; ++j) {
                const double v = g[j] - mean[j] * intercept;
                part += scale[j] * v * v;
            }
            total += part + scale[width_ - 1] * intercept * intercept;
        }
        return std::sqrt(total);
    }

    Model model_;
    size_t width_;
    std::vector<double> base_, correction_;

  private:
    Columns columns_;
    const double* drift_;
    double l2_;
};

// Gradients of drawn rows.
template <class Rows>
class DenseModel : public DenseSteps {
  public:
    DenseModel(const Rows& X, const Model& model, const Columns& columns, const double* drift,
               double l2)
        : DenseSteps(X.d, model, columns, drift, l2), X_(X) {}

    // Scores of drawn rows at θ.
    void scores(const DrawnRows& drawn, double* f) const { scores_at(model_.theta, drawn, f); }

    // Scores of drawn rows at another point.
    void scores_at(const double* theta, const DrawnRows& drawn, double* f) const {
        prefetch_rows(X_, drawn, 0, drawn.count);
        const auto row = [&](size_t i) { return drawn[i]; };
        if (X_.column_stride == 1) {
            scores_by_four(X_, theta, model_.m, drawn.count, row, f);
            return;
        }
        for (size_t i = 0; i < drawn.count; ++i) {
            for (size_t c = 0; c < model_.m; ++c) {
                f[i * model_.m + c] = row_score(X_, row(i), theta + c * width_);
            }
        }
    }

    void begin_step(double, const Part& base) { gather(base, base_); }

    double correction_norm(const Part& correction) {
        gather(correction, correction_);
        return norm(correction_);
    }

  private:
    // gradient += Σ u (x, 1).
    void gather(const Part& part, std::vector<double>& gradient) {
        const auto row = [&](size_t i) { return part.drawn[i]; };
        for (size_t c = 0; c < model_.m; ++c) {
            double* g = gradient.data() + c * width_;
            add_rows(X_, part.drawn.count, row, part.u + c, model_.m, g);
        }
    }

    const Rows& X_;
};

// Gradients of rows that are elsewhere: the u of a part is its gradient.
class GivenGradients : public DenseSteps {
  public:
    using DenseSteps::DenseSteps;

    void begin_step(double, const Part& base) { base_.assign(base.u, base.u + base_.size()); }

    double correction_norm(const Part& correction) {
        correction_.assign(correction.u, correction.u + correction_.size());
        return norm(correction_);
    }
};

}  // namespace drolearn::TARGET
