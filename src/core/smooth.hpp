// How worst-case weights follow the losses: what Hessians and smoothed worst cases need.
#pragma once

#include <vector>

#include "curve.hpp"
#include "divergence.hpp"
#include "threads.hpp"

namespace drolearn {

// Losses, their worst-case weights and multipliers.
struct Weighted {
    Losses losses;
    const double* p = nullptr;
    Multipliers at;
};

// First and second derivatives of the losses in their scores.
struct Derivatives {
    const double* slope = nullptr;
    const double* bend = nullptr;
};

// Where `second_order` writes; each has one number for each row.
struct SecondOrder {
    double* diagonal = nullptr;
    double* first = nullptr;
    double* second = nullptr;
};

// The symmetric matrix [aa, ab; ab, bb].
struct Inner2 {
    double aa = 0, ab = 0, bb = 0;
};

// Where `follow` writes s(t) and its slope.
struct Follower {
    double* s;
    double* rise;
};

namespace TARGET {

// 1/φ''(s) of each weight p = b s; zero where s is held by a straight piece.
inline bool bends_of_weights(const Divergence& divergence, const Losses& losses, const double* p,
                             double total, double* out) {
    const auto own = [&](size_t i) { return losses.b ? losses.b[i] / total : 1.0 / total; };
    for (size_t i = 0; i < losses.n; ++i) out[i] = own(i) > 0.0 ? p[i] / own(i) : 0.0;
    if (divergence.straight) {
        for (size_t i = 0; i < losses.n; ++i) out[i] = 0.0;
        return true;
    }
    if (divergence.family == Family::custom) {  // by differences of φ'
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
        if constexpr (requires { phi.bend(1.0); }) {
            for (size_t i = 0; i < losses.n; ++i) out[i] = out[i] > 0.0 ? phi.bend(out[i]) : 0.0;
        }
    });
    return true;
}

// What the Hessian of the robust loss needs, from losses z and their weights p.
//
// The robust loss is the minimum over α and λ of a function that is jointly convex in them and the
// scores f; eliminating both gives, with v = b s'(t)/α and t = (z − λ)/α,
//
//     diag(p l'' + v l'²) − C M⁻¹ Cᵀ,   C = [v l', v t l'],   M = [Σv, Σvt; Σvt, Σvt²].
//
// Writes the diagonal and the columns of C; M is added up over chunks, in order.
inline Status second_order(const Divergence& divergence, const Weighted& weighted,
                           const Derivatives& loss, const SecondOrder& out, Inner2& matrix,
                           Workers& workers) {
    const Losses losses = weighted.losses;
    const double* p = weighted.p;
    const Multipliers at = weighted.at;
    const size_t chunks = chunk_count(losses.n);
    double total = static_cast<double>(losses.n);
    if (losses.b) {
        total = 0.0;
        for (size_t i = 0; i < losses.n; ++i) total += losses.b[i];
    }
    std::vector<Inner2> parts(chunks);
    bool fine = true;
    const auto body = [&](size_t k) {
        const size_t start = k * chunk_size, stop = std::min(start + chunk_size, losses.n);
        double bends[chunk_size];
        const Losses own = losses.chunk(k);
        if (!bends_of_weights(divergence, own, p + start, total, bends)) {
            fine = false;
            return;
        }
        Inner2 sums;
        for (size_t i = start; i < stop; ++i) {
            const double base = losses.b ? losses.b[i] / total : 1.0 / total;
            const bool moves = base > 0.0 && at.alpha < infinity;
            const double v = moves ? base * bends[i - start] / at.alpha : 0.0;
            const double t = moves ? (losses.z[i] - at.lam) / at.alpha : 0.0;
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
    Workers alone;
    const bool custom = divergence.family == Family::custom;
    if (!(custom ? alone : workers).run(chunks, body)) return Status::interrupted;
    if (!fine) return Status::callback_failed;
    for (const Inner2& part : parts) {
        matrix.aa += part.aa;
        matrix.ab += part.ab;
        matrix.bb += part.bb;
    }
    return Status::ok;
}

// Writes s(t) = (φ')⁻¹(t), at most `cap`, and its slope.
inline Status follow(const Divergence& divergence, const double* t, size_t n, double cap,
                     const Follower& out) {
    if (divergence.family == Family::custom) {
        std::vector<double> x(n), ahead(n), s, next;
        for (size_t i = 0; i < n; ++i) {
            x[i] = t[i] - divergence.origin;
            // Beyond the slope of φ at infinity there is no s.
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
            } else if constexpr (requires { phi.at(0.0); }) {
                const double x = t[i] - divergence.origin;
                // Beyond the slope of φ at infinity there is no s.
                if (divergence.origin <= 0.0 || x < 0.0) at = phi.at(x);
            }
            const bool inside = 0.0 < at.s && at.s < cap;
            out.s[i] = std::min(at.s, cap);
            out.rise[i] = inside ? at.ds : 0.0;
        }
    });
    return Status::ok;
}

}  // namespace TARGET
}  // namespace drolearn
