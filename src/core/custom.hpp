// Sums and weights for a user's φ, whose functions are called on arrays.
#pragma once

#include <vector>

#include "divergence.hpp"
#include "search.hpp"

namespace drolearn::TARGET {

// Chunks per call of a user's function: each call from C++ into Python costs some microseconds.
inline constexpr size_t custom_chunks = 16;

// Evaluates a user's φ on many losses. It keeps its buffers between calls.
class CustomCurve {
  public:
    explicit CustomCurve(const Divergence& divergence) : divergence_(divergence) {}

    // s at t = origin + x, clipped to [0, cap].
    bool inverse(const std::vector<double>& x, double cap, std::vector<double>& s) {
        return inverse_from(divergence_.slope_one + divergence_.origin, x, cap, s);
    }

    // φ(s) − slope_one · (s − 1).
    bool phi(const std::vector<double>& s, std::vector<double>& value) {
        positive_.resize(s.size());
        value.resize(s.size());
        // φ may be undefined at zero; its limit there is phi_zero.
        for (size_t i = 0; i < s.size(); ++i) positive_[i] = s[i] > 0.0 ? s[i] : 1.0;
        if (!divergence_.phi(positive_.data(), value.data(), value.size())) return false;
        for (size_t i = 0; i < s.size(); ++i) {
            const double level = value[i] - divergence_.slope_one * (s[i] - 1.0);
            value[i] = s[i] > 0.0 ? level : divergence_.phi_zero;
        }
        return true;
    }

    // `curve_sums` for each of some chunks.
    bool sums(const Ball& ball, const Losses& losses, const Search& search, double* out,
              Sums* parts) {
        const Frame& frame = ball.frame;
        const double cap = cap_of(frame);
        const bool power = divergence_.origin != 0.0;
        x_.resize(losses.n);
        for (size_t i = 0; i < losses.n; ++i) {
            x_[i] = search.curve.x + search.curve.beta * frame.depth(losses.z[i]);
        }
        if (!inverse(x_, cap, s_) || !phi(s_, value_)) return false;
        // With linear pieces the search is a bisection, which does not use ds.
        behind_ = s_;
        if (!divergence_.has_linear_pieces) {
            if (!step_behind(divergence_.slope_one + divergence_.origin, cap)) return false;
        }
        for (size_t k = 0; k < chunk_count(losses.n); ++k) {
            CurveSums sums;
            const size_t stop = std::min((k + 1) * chunk_size, losses.n);
            for (size_t i = k * chunk_size; i < stop; ++i) {
                const double d = frame.depth(losses.z[i]), y = power ? x_[i] : d;
                const double w = losses.b ? losses.b[i] : 1.0, s = w * s_[i];
                const double ds = w * (s_[i] - behind_[i]) / step_size(x_[i]);
                out[i] = s * frame.unit;
                sums.join({s, s * d, w * value_[i], ds, ds * y, ds * y * y});
            }
            parts[k].curve = sums;
        }
        return true;
    }

    // `refine_sums` for each of some chunks.
    bool refine_sums(const Ball& ball, const Losses& losses, const Search& search, double* out,
                     Sums* parts) {
        const Frame& frame = ball.frame;
        const RefineState& state = search.refine;
        const double cap = cap_of(frame);
        x_.resize(losses.n);
        for (size_t i = 0; i < losses.n; ++i) {
            x_[i] = state.beta * (frame.depth(losses.z[i]) - state.shift) + state.nu;
        }
        if (!inverse_from(divergence_.slope_one, x_, cap, s_) || !phi(s_, value_)) return false;
        if (!phi_near_one(s_, value_)) return false;
        if (!step_behind(divergence_.slope_one, cap)) return false;
        for (size_t k = 0; k < chunk_count(losses.n); ++k) {
            CurveSums sums;
            const size_t stop = std::min((k + 1) * chunk_size, losses.n);
            for (size_t i = k * chunk_size; i < stop; ++i) {
                const double d = frame.depth(losses.z[i]), u = d - state.shift;
                const double w = losses.b ? losses.b[i] : 1.0;
                const double ds = w * (s_[i] - behind_[i]) / step_size(x_[i]);
                out[i] = w * frame.unit * s_[i];
                sums.join(
                    {w * (s_[i] - 1.0), w * s_[i] * d, w * value_[i], ds, ds * u, ds * u * u});
            }
            parts[k].curve = sums;
        }
        return true;
    }

    // `write_mixture` for each of some chunks.
    bool write(const Ball& ball, const Losses& losses, const Search& search, double* out,
               Sums* parts) {
        const Frame& frame = ball.frame;
        std::vector<double>& s = behind_;
        s.assign(losses.n, 0.0);
        x_.resize(losses.n);
        for (const MixturePoint& point : search.curve.mixture) {
            if (!(point.share > 0.0)) continue;
            for (size_t i = 0; i < losses.n; ++i) {
                x_[i] = point.x + point.beta * frame.depth(losses.z[i]);
            }
            if (!inverse(x_, cap_of(frame), s_)) return false;
            for (size_t i = 0; i < losses.n; ++i) s[i] += point.share * s_[i];
        }
        for (double& each : s) each /= search.norm;
        if (!phi(s, value_)) return false;
        for (size_t k = 0; k < chunk_count(losses.n); ++k) {
            WriteSums sums;
            const size_t stop = std::min((k + 1) * chunk_size, losses.n);
            for (size_t i = k * chunk_size; i < stop; ++i) {
                const double w = losses.b ? frame.unit * losses.b[i] : frame.unit;
                const double p = w * s[i];
                out[i] = p;
                const double divergence = w > 0.0 ? w * value_[i] : 0.0;
                sums.join({p, p * frame.depth(losses.z[i]), divergence, 0.0});
            }
            parts[k].write = sums;
        }
        return true;
    }

  private:
    // The largest s, which keeps s finite for φ with a finite slope at infinity. It excludes
    // nothing: s grows with the loss, and the largest loss has s ≤ 1/peak. Newton's method gets
    // some room above that: where s is clipped, its derivative is lost, and in large balls the
    // solution lies next to 1/peak.
    double cap_of(const Frame& frame) const {
        return (divergence_.has_linear_pieces ? 1.0 : 4.0) / frame.peak;
    }

    // s at t = offset + x, clipped to [0, cap].
    bool inverse_from(double offset, const std::vector<double>& x, double cap,
                      std::vector<double>& s) {
        t_.resize(x.size());
        s.resize(x.size());
        for (size_t i = 0; i < x.size(); ++i) t_[i] = offset + x[i];
        if (!divergence_.inverse(t_.data(), s.data(), s.size())) return false;
        for (double& each : s) each = each >= cap ? cap : each > 0.0 ? each : 0.0;
        return true;
    }

    // s at x − step in `behind_`, for one-sided differences. They are accurate enough for Newton's
    // method, which converges as long as the brackets shrink. A step ahead could pass a pole
    // of s.
    bool step_behind(double offset, double cap) {
        next_.resize(x_.size());
        for (size_t i = 0; i < x_.size(); ++i) next_[i] = x_[i] - step_size(x_[i]);
        return inverse_from(offset, next_, cap, behind_);
    }

    static double step_size(double x) { return 1e-7 * (1.0 + std::fabs(x)); }

    // Replaces φ(s) by ∫₁ˢ φ'(v) − φ'(1) dv where |s − 1| ≤ 1e-3. φ itself is about (s − 1)² there
    // and has lost its digits; φ' is about s − 1 and has not. Gauss' rule with three points has a
    // relative error of order |s − 1|⁵.
    bool phi_near_one(const std::vector<double>& s, std::vector<double>& value) {
        constexpr double points[] = {0.1127016653792583, 0.5, 0.8872983346207417};
        constexpr double weights[] = {5.0 / 18.0, 8.0 / 18.0, 5.0 / 18.0};
        const size_t n = s.size();
        next_.resize(3 * n);
        behind_.resize(3 * n);
        for (size_t i = 0; i < n; ++i) {
            const double excess = std::fabs(s[i] - 1.0) <= 1e-3 ? s[i] - 1.0 : 0.0;
            for (size_t j = 0; j < 3; ++j) next_[3 * i + j] = 1.0 + points[j] * excess;
        }
        if (!divergence_.dphi(next_.data(), behind_.data(), next_.size())) return false;
        for (size_t i = 0; i < n; ++i) {
            const double excess = s[i] - 1.0;
            if (!(std::fabs(excess) <= 1e-3)) continue;
            double mean = 0.0;
            for (size_t j = 0; j < 3; ++j) {
                // φ'(v) − φ'(1) is almost proportional to v − 1: correct it for the rounding of v.
                const double rounded = next_[3 * i + j] - 1.0, exact = points[j] * excess;
                const double slope = behind_[3 * i + j] - divergence_.slope_one;
                mean += weights[j] * (rounded != 0.0 ? slope * (exact / rounded) : 0.0);
            }
            value[i] = excess * mean;
        }
        return true;
    }

    const Divergence& divergence_;
    std::vector<double> x_, next_, s_, behind_, value_, t_, positive_;
};

}  // namespace drolearn::TARGET
