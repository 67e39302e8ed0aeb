// Smoothed worst cases, and derivatives of worst-case weights with respect to the losses.
#pragma once

#include <algorithm>
#include <cmath>
#include <vector>

#include "custom.hpp"
#include "divergence.hpp"
#include "threads.hpp"

namespace drolearn {

// Losses, their worst-case weights and multipliers.
struct Weighted {
    Losses losses;
    const double* p = nullptr;
    Multipliers multipliers;
};

// First and second derivatives of the losses in their scores.
struct Derivatives {
    const double* slope = nullptr;
    const double* bend = nullptr;
};

// The output of `second_order`, one number per row each.
struct SecondOrder {
    double* diagonal = nullptr;
    double* first = nullptr;
    double* second = nullptr;
};

// The symmetric matrix [aa, ab; ab, bb].
struct Inner2 {
    double aa = 0, ab = 0, bb = 0;
};

// The output of `follow`: s(t) and ds/dt.
struct InverseSlope {
    double* s;
    double* rise;
};

// The output of `weigh`: λ and Σ b φ(s).
struct Weighing {
    double lam = 0, divergence = 0;
};

namespace TARGET {

// 1/φ''(s) for each weight p = b s; zero if φ has linear pieces.
inline bool inverse_curvatures(const Divergence& divergence, const Losses& losses, const double* p,
                               double total, double* out) {
    const auto base = [&](size_t i) { return losses.b ? losses.b[i] / total : 1.0 / total; };
    for (size_t i = 0; i < losses.n; ++i) out[i] = base(i) > 0.0 ? p[i] / base(i) : 0.0;
    if (divergence.has_linear_pieces) {
        for (size_t i = 0; i < losses.n; ++i) out[i] = 0.0;
        return true;
    }
    if (divergence.family == Family::custom) {  // by finite differences of φ'
        std::vector<double> ends(2 * losses.n), slopes(2 * losses.n);
        for (size_t i = 0; i < losses.n; ++i) {
            const double s = out[i] > 0.0 ? out[i] : 1.0;
            ends[2 * i] = s - 1e-5 * s;
            ends[2 * i + 1] = s + 1e-5 * s;
        }
        if (!divergence.dphi(ends.data(), slopes.data(), ends.size())) return false;
        for (size_t i = 0; i < losses.n; ++i) {
            const double rise = slopes[2 * i + 1] - slopes[2 * i];
            const bool moves = out[i] > 0.0 && rise > 0.0;
            out[i] = moves ? 2e-5 * out[i] / rise : 0.0;
        }
        return true;
    }
    visit(divergence, [&](const auto& phi) {
        if constexpr (requires { phi.inverse_curvature(1.0); }) {
            for (size_t i = 0; i < losses.n; ++i) {
                out[i] = out[i] > 0.0 ? phi.inverse_curvature(out[i]) : 0.0;
            }
        }
    });
    return true;
}

// The parts of the Hessian of the robust loss in the scores f.
//
// The robust loss is the minimum over α and λ of a jointly convex function of α, λ and f.
// Eliminating α and λ gives, with v = b s'(t)/α and t = (z − λ)/α, the Hessian
//
//     diag(p l'' + v l'²) − C M⁻¹ Cᵀ,   C = [v l', v t l'],   M = [Σv, Σvt; Σvt, Σvt²].
//
// Writes the diagonal, the columns of C, and M, which is summed over the chunks in order.
inline Status second_order(const Divergence& divergence, const Weighted& weighted,
                           const Derivatives& loss, const SecondOrder& out, Inner2& matrix,
                           Workers& workers) {
    const Losses losses = weighted.losses;
    const double* p = weighted.p;
    const double alpha = weighted.multipliers.alpha, lam = weighted.multipliers.lam;
    const size_t chunks = chunk_count(losses.n);
    double total = static_cast<double>(losses.n);
    if (losses.b) {
        total = 0.0;
        for (size_t i = 0; i < losses.n; ++i) total += losses.b[i];
    }
    std::vector<Inner2> parts(chunks);
    bool raised = false;  // by a user's function
    const auto body = [&](size_t k) {
        const size_t start = k * chunk_size, stop = std::min(start + chunk_size, losses.n);
        double ds[chunk_size];
        if (!inverse_curvatures(divergence, losses.chunk(k), p + start, total, ds)) {
            raised = true;
            return;
        }
        Inner2 sums;
        for (size_t i = start; i < stop; ++i) {
            const double base = losses.b ? losses.b[i] / total : 1.0 / total;
            const bool moves = base > 0.0 && alpha < infinity;
            const double v = moves ? base * ds[i - start] / alpha : 0.0;
            const double t = moves ? (losses.z[i] - lam) / alpha : 0.0;
            const double slope = loss.slope[i];
            out.diagonal[i] = p[i] * loss.bend[i] + v * slope * slope;
            out.first[i] = v * slope;
            out.second[i] = v * t * slope;
            sums.aa += v;
            sums.ab += v * t;
            sums.bb += v * t * t;
        }
        parts[k] = sums;
    };
    Workers one_thread;
    const bool custom = divergence.family == Family::custom;
    if (!(custom ? one_thread : workers).run(chunks, body)) return Status::interrupted;
    if (raised) return Status::callback_failed;
    for (const Inner2& part : parts) {
        matrix.aa += part.aa;
        matrix.ab += part.ab;
        matrix.bb += part.bb;
    }
    return Status::ok;
}

// Writes s(t) = (φ')⁻¹(t), at most `cap`, and ds/dt.
inline Status follow(const Divergence& divergence, const double* t, size_t n, double cap,
                     const InverseSlope& out) {
    if (divergence.family == Family::custom) {
        std::vector<double> x(n), ahead(n), s, next;
        for (size_t i = 0; i < n; ++i) {
            x[i] = t[i] - divergence.origin;
            // s is not defined beyond the slope of φ at infinity.
            if (divergence.origin > 0.0 && x[i] >= 0.0) x[i] = -1e-300;
            ahead[i] = x[i] + 1e-7 * (1.0 + std::fabs(x[i]));
        }
        CustomCurve curve(divergence);
        if (!curve.inverse(x, cap, s) || !curve.inverse(ahead, cap, next)) {
            return Status::callback_failed;
        }
        for (size_t i = 0; i < n; ++i) {
            const bool inside = 0.0 < s[i] && s[i] < cap;
            out.s[i] = s[i];
            out.rise[i] = inside ? (next[i] - s[i]) / (ahead[i] - x[i]) : 0.0;
        }
        return Status::ok;
    }
    visit(divergence, [&](const auto& phi) {
        for (size_t i = 0; i < n; ++i) {
            CurvePoint at{cap, 0.0, 0.0};
            if (divergence.family == Family::chi2) {
                at = {std::max(1.0 + 0.5 * t[i], 0.0), 0.5, 0.0};
            } else if (divergence.family == Family::kl) {
                const double s = std::exp(std::min(t[i], 700.0));
                at = {s, s, 0.0};
            } else if constexpr (requires { phi.half(0.0); }) {
                const double x = t[i] - divergence.origin;
                // s is not defined beyond the slope of φ at infinity.
                if (divergence.origin <= 0.0 || x < 0.0) at = phi.at(x, phi.half(x));
            }
            const bool inside = 0.0 < at.s && at.s < cap;
            out.s[i] = std::min(at.s, cap);
            out.rise[i] = inside ? at.ds : 0.0;
        }
    });
    return Status::ok;
}

// Writes the weights p = b s((z − λ)/α) with Σ p = 1 for a given α; Σ b must be 1.
//
// log Σ b s((z − λ)/α) decreases in λ, and is linear for KL: Newton's method within a bracket,
// which is halved where that does not make the logarithm half as large.
inline Status weigh(const Divergence& divergence, const Losses& losses, double alpha, double* p,
                    Weighing& out) {
    const double *z = losses.z, *b = losses.b;
    const size_t n = losses.n;
    double top = -infinity, bottom = infinity;
    for (size_t i = 0; i < n; ++i) {
        if (b[i] <= 0.0) continue;
        top = std::max(top, z[i]);
        bottom = std::min(bottom, z[i]);
    }
    double mass = 0.0;  // of the largest losses
    for (size_t i = 0; i < n; ++i) mass += z[i] == top ? b[i] : 0.0;
    const double cap = 1.0 / std::max(mass, 1e-300);
    std::vector<double> t(n), s(n), rise(n);
    // Differences from the largest loss keep their digits: λ is one, too.  s ≤ 1 for λ = 0, and
    // s ≥ 1 for the smallest loss.
    double low = bottom - top, high = 0.0, lam = 0.0, before = infinity;
    for (int step = 0; step < 500; ++step) {
        for (size_t i = 0; i < n; ++i) t[i] = ((z[i] - top) - lam) / alpha;
        const Status status = follow(divergence, t.data(), n, cap, {s.data(), rise.data()});
        if (status != Status::ok) return status;
        double total = 0.0, slope = 0.0;
        for (size_t i = 0; i < n; ++i) {
            total += b[i] * s[i];
            slope += b[i] * rise[i];
        }
        (total >= 1.0 ? low : high) = lam;
        const double size = std::fabs(std::log(total));
        const double newton = lam + alpha * std::log(total) * total / slope;
        const bool inside = low < newton && newton < high;
        const double next = inside && size <= 0.5 * before ? newton : 0.5 * (low + high);
        const bool rounding = size <= 4e-16 || high - low <= 4e-16 * std::fabs(lam);
        if (rounding || next == lam) break;
        before = size;
        lam = next;
    }
    double total = 0.0;
    for (size_t i = 0; i < n; ++i) total += b[i] * s[i];
    for (size_t i = 0; i < n; ++i) s[i] /= total;
    if (divergence.family == Family::custom) {
        if (!CustomCurve(divergence).phi(s, rise)) return Status::callback_failed;
    } else {
        for (size_t i = 0; i < n; ++i) rise[i] = phi_of(divergence, s[i]);
    }
    out = {top + lam, 0.0};
    for (size_t i = 0; i < n; ++i) {
        p[i] = b[i] * s[i];
        if (b[i] > 0.0) out.divergence += b[i] * rise[i];
    }
    return Status::ok;
}

}  // namespace TARGET
}  // namespace drolearn
