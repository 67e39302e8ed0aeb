// The divergences, one small class each. No other file of the core lists them.
//
//     phi(s)                 φ(s) for s > 0
//     inverse_curvature(s)   1/φ''(s) = ds/dt, where t = φ'(s)
//
// Divergences that curve.hpp solves also have
//
//     slope(s)               x = φ'(s) − origin
//     half(x)                the first half of `at`: a number from which s is easily computed
//     at(x, half)            s, ds/dt and φ(s) at t = origin + x
//
// Divergences that refine.hpp handles have
//
//     near_one(t, x)         s, s − 1, ds/dt and φ(s) at t = φ'(s) = origin + x; s − 1 and φ(s)
//                            keep their relative precision where s is next to 1
//
// Those whose s is a power of x have
//
//     divided(D, total)      E φ(s/total) for D = E φ(s) and total = E s
//     dual_factor(D, total, ρ)  the factor m for which E φ(m s) − ρ = origin (E m s − 1)
//
// `half`, `at` and `near_one` have no branches, so loops over them vectorise.
#pragma once

#include <cmath>
#include <string_view>
#include <utility>

#include "elementary.hpp"
#include "target.hpp"
#include "types.hpp"

namespace drolearn {

// From reverse_kl on, curve.hpp solves them.
enum class Family {
    chi2,
    kl,
    total_variation,
    cvar,
    reverse_kl,
    hellinger,
    jensen_shannon,
    triangular,
    cressie_read,
    custom,
};

struct Divergence {
    Family family = Family::chi2;
    double parameter = 0;  // the power k of Cressie-Read, the level of CVaR
    // t is stored as x = t − origin. The origin is the slope of φ at infinity if that is finite (or
    // the slope at zero for k ≥ 1.5), so x keeps its relative precision where s is very large (or
    // very small).
    double origin = 0;
    double phi_zero = 0;             // φ(0)
    double curvature = 1;            // φ''(1), or 1 if unknown
    bool has_linear_pieces = false;  // whether φ is linear on some interval
    // Custom φ only. Adding a multiple of s − 1 to φ changes no D, so solvers use φ with the linear
    // term slope_one · (s − 1) subtracted, where slope_one = φ'(1).
    double slope_one = 0;
    ArrayFunction phi, dphi, inverse;

    bool is_curve() const { return family >= Family::reverse_kl; }
    bool is_quantile() const { return family == Family::total_variation || family == Family::cvar; }
};

inline constexpr std::pair<std::string_view, Family> families[] = {
    {"chi2", Family::chi2},
    {"kl", Family::kl},
    {"total-variation", Family::total_variation},
    {"cvar", Family::cvar},
    {"reverse-kl", Family::reverse_kl},
    {"hellinger", Family::hellinger},
    {"jensen-shannon", Family::jensen_shannon},
    {"triangular", Family::triangular},
    {"cressie-read", Family::cressie_read},
    {"custom", Family::custom},
};

namespace TARGET {

struct CurvePoint {
    double s, ds, phi;
};

struct NearPoint {
    double s, excess, ds, phi;  // excess = s − 1
};

// φ = (s − 1)², φ' = 2 (s − 1).
struct ChiSquare {
    explicit ChiSquare(const Divergence&) {}
    double phi(double s) const { return (s - 1.0) * (s - 1.0); }
    double inverse_curvature(double) const { return 0.5; }
    PER_NUMBER NearPoint near_one(double t, double) const {
        const bool positive = t > -2.0;
        const double excess = select(positive, 0.5 * t, -1.0);
        return {1.0 + excess, excess, select(positive, 0.5, 0.0), excess * excess};
    }
};

// φ = s log s − s + 1, φ' = log s.
struct KullbackLeibler {
    explicit KullbackLeibler(const Divergence&) {}
    double phi(double s) const { return s * std::log(s) - s + 1.0; }
    double inverse_curvature(double s) const { return s; }
    PER_NUMBER NearPoint near_one(double t, double) const {
        const double s = fast_exp(t);
        const Expm1 e = expm1_parts(t);
        // φ = s t − (s − 1) = (s − 1) t − (s − 1 − t)
        return {s, e.expm1, s, e.expm1 * t - e.minus_x};
    }
};

struct TotalVariation {
    explicit TotalVariation(const Divergence&) {}
    double phi(double s) const { return 0.5 * std::fabs(s - 1.0); }
    double inverse_curvature(double) const { return 0.0; }
};

struct ConditionalValueAtRisk {
    double level;
    explicit ConditionalValueAtRisk(const Divergence& divergence) : level(divergence.parameter) {}
    double phi(double s) const { return s <= 1.0 / level ? 0.0 : infinity; }
    double inverse_curvature(double) const { return 0.0; }
};

// φ = s − 1 − log s, φ' = 1 − 1/s.
struct ReverseKL {
    explicit ReverseKL(const Divergence&) {}
    double phi(double s) const { return s - 1.0 - std::log(s); }
    double inverse_curvature(double s) const { return s * s; }
    double slope(double s) const { return -1.0 / s; }
    double divided(double divergence, double total) const {
        return divergence - (total - 1.0) + std::log(total);
    }
    PER_NUMBER double half(double x) const { return fast_log(-x); }  // −log s
    PER_NUMBER CurvePoint at(double x, double log) const {
        const double s = -1.0 / x;
        return {s, s * s, s - 1.0 + log};
    }
    PER_NUMBER NearPoint near_one(double t, double x) const {
        const double s = 1.0 / select(t < 0.5, 1.0 - t, -x), excess = t * s;
        return {s, excess, s * s, log1p_parts(excess, s).x_minus};
    }
};

// φ = ½ (√s − 1)², φ' = ½ − ½/√s.
struct Hellinger {
    explicit Hellinger(const Divergence&) {}
    double phi(double s) const {
        const double q = std::sqrt(s) - 1.0;
        return 0.5 * q * q;
    }
    double inverse_curvature(double s) const { return 4.0 * s * std::sqrt(s); }
    double slope(double s) const { return -0.5 / std::sqrt(s); }
    double divided(double divergence, double total) const {
        return 1.0 - (0.5 * (1.0 + total) - divergence) / std::sqrt(total);  // 1 − E √s / √total
    }
    PER_NUMBER double half(double x) const { return -0.5 / x; }  // √s
    PER_NUMBER CurvePoint at(double, double q) const {
        return {q * q, 4.0 * q * q * q, 0.5 * (q - 1.0) * (q - 1.0)};
    }
    PER_NUMBER NearPoint near_one(double t, double x) const {
        const double root = 1.0 / select(t < 0.25, 1.0 - 2.0 * t, -2.0 * x);
        const double q = 2.0 * t * root;  // √s − 1
        return {root * root, q * (2.0 + q), 4.0 * root * root * root, 0.5 * q * q};
    }
};

// φ = ½ (s log s − (1 + s) log((1 + s)/2)), φ' = ½ log(2s/(1 + s)).
struct JensenShannon {
    double origin;
    explicit JensenShannon(const Divergence& divergence) : origin(divergence.origin) {}
    double phi(double s) const {
        return 0.5 * (s * std::log(s) - (1.0 + s) * std::log(0.5 * (1.0 + s)));
    }
    double inverse_curvature(double s) const { return 2.0 * s * (1.0 + s); }
    double slope(double s) const { return -0.5 * std::log1p(1.0 / s); }
    PER_NUMBER double half(double x) const {  // s
        const ExpParts e = exp_parts(2.0 * x);
        return (e.scale + e.scale * e.expm1) / -(e.scale * e.expm1 + (e.scale - 1.0));
    }
    PER_NUMBER CurvePoint at(double x, double s) const {
        // φ = s t − ½ log((1 + s)/2), as log(2s/(1 + s)) = 2t
        return {s, 2.0 * s * (1.0 + s), s * (origin + x) - 0.5 * fast_log(0.5 + 0.5 * s)};
    }
    PER_NUMBER NearPoint near_one(double t, double x) const {
        // With m = e^(2t) − 1 and y = (s − 1)/2 = m/(1 − m):
        // φ = 2 y t − ½ m y − ½ (m − 2t) + ½ (y − log(1 + y)).
        const Expm1 m = expm1_parts(2.0 * t);
        const double one_minus_m = select(t < 0.15, 1.0 - m.expm1, -2.0 * fast_expm1(2.0 * x));
        const double y = m.expm1 / one_minus_m, s = fast_exp(2.0 * t) / one_minus_m;
        const double log = log1p_parts(y, 1.0 + y).x_minus;
        const double phi = 2.0 * y * t - 0.5 * (m.expm1 * y + m.minus_x - log);
        return {s, 2.0 * y, 2.0 * s * (1.0 + s), phi};
    }
};

// φ = (s − 1)²/(s + 1), φ' = 1 − 4/(s + 1)².
struct Triangular {
    explicit Triangular(const Divergence&) {}
    double phi(double s) const { return (s - 1.0) * (s - 1.0) / (s + 1.0); }
    double inverse_curvature(double s) const { return 0.125 * (s + 1.0) * (s + 1.0) * (s + 1.0); }
    double slope(double s) const { return -4.0 / ((s + 1.0) * (s + 1.0)); }
    PER_NUMBER double half(double x) const { return 2.0 / std::sqrt(-x); }  // s + 1, if s > 0
    PER_NUMBER CurvePoint at(double, double q) const {
        const bool positive = q > 1.0;
        return {select(positive, q - 1.0, 0.0), select(positive, 0.125 * q * q * q, 0.0),
                select(positive, (q - 2.0) * (q - 2.0) / q, 1.0)};
    }
    PER_NUMBER NearPoint near_one(double t, double x) const {
        const double root = std::sqrt(select(t < 0.5, 1.0 - t, -x));  // 2/(s + 1)
        const bool positive = root < 2.0;
        const double excess = select(positive, 2.0 * t / (root * (1.0 + root)), -1.0);
        return {1.0 + excess, excess, select(positive, 1.0 / (root * root * root), 0.0),
                select(positive, 0.5 * excess * excess * root, 1.0)};
    }
};

// φ = (sᵏ − k s + k − 1)/(k (k − 1)), φ' = (s^(k−1) − 1)/(k − 1).
//
// For |k − 1| < ⅛ the origin is zero and s^(k−1) = 1 + (k − 1) x. For other k the origin is the t
// at which s is infinite or zero, and s^(k−1) = (k − 1) x. The formula of φ for k ≤ ½ is exact next
// to k = 0, that for k > ½ is exact next to k = 1.
enum class Powers { next_to_one, above_half, up_to_half };

template <Powers powers>
struct CressieRead {
    double k, origin, phi_zero, per_k, per_power;
    explicit CressieRead(const Divergence& divergence)
        : k(divergence.parameter), origin(divergence.origin), phi_zero(divergence.phi_zero),
          per_k(1.0 / k), per_power(1.0 / (k - 1.0)) {}
    double phi(double s) const {
        if (powers == Powers::up_to_half) {
            return (std::expm1(k * std::log(s)) / k - (s - 1.0)) / (k - 1.0);
        }
        const double t = std::expm1((k - 1.0) * std::log(s)) / (k - 1.0);
        return (1.0 - s + s * t) / k;
    }
    double inverse_curvature(double s) const { return std::pow(s, 2.0 - k); }
    double slope(double s) const {
        if (origin == 0.0) return std::expm1((k - 1.0) * std::log(s)) / (k - 1.0);
        return std::pow(s, k - 1.0) / (k - 1.0);
    }
    double divided(double divergence, double total) const {
        // E sᵏ = 1 + k (total − 1 + (k − 1) D); where the sum cancels, it has no digits
        const double excess = k * (total - 1.0 + (k - 1.0) * divergence);
        if (k > 1.0 && !(excess > -0.99)) return std::nan("");
        const double power = std::log1p(excess);
        return std::expm1(power - k * std::log(total)) / (k * (k - 1.0));
    }
    double dual_factor(double divergence, double total, double rho) const {
        const double power = std::log1p(k * (total - 1.0 + (k - 1.0) * divergence));
        return std::exp((std::log1p(k * (k - 1.0) * rho) - power) / k);
    }
    // log s where s > 0, else −∞
    PER_NUMBER double half(double x) const {
        const double step = (k - 1.0) * x;
        const double base = powers == Powers::next_to_one ? 1.0 + step : step;
        const bool positive = base > 1e-300;
        const double safe = select(positive, base, 1.0);
        double log = fast_log(safe);
        // corrects the rounding of 1 + step
        if (powers == Powers::next_to_one) log += (step - (safe - 1.0)) / safe;
        log *= per_power;
        return select(positive, select(log > 709.0, 709.0, log), -infinity);
    }
    PER_NUMBER CurvePoint at(double x, double log) const {
        const double s = fast_exp(log);
        const double step = (k - 1.0) * x;
        const double base = powers == Powers::next_to_one ? 1.0 + step : step;
        const bool positive = base > 1e-300;
        double value;
        if (powers == Powers::up_to_half) {
            value = (fast_expm1(k * log) * per_k - (s - 1.0)) * per_power;
        } else {
            value = (1.0 - s + s * (origin + x)) * per_k;
        }
        return {s, select(positive, s / base, 0.0), select(positive, value, phi_zero)};
    }
    PER_NUMBER NearPoint near_one(double t, double x) const {
        const double step = (k - 1.0) * t;
        double base = 1.0 + step;  // s^(k−1)
        if (powers != Powers::next_to_one)
            base = select(std::fabs(step) < 0.5, base, (k - 1.0) * x);
        const bool positive = base > 1e-300;
        const double safe = select(positive, base, 1.0);
        const Log1p power = log1p_parts(select(positive, step, 0.0), safe);
        double log = power.log1p * per_power;  // log s
        log = select(log > 700.0, 700.0, log);
        const Expm1 e = expm1_parts(log);
        const double s = fast_exp(log);
        double value;
        if (powers == Powers::up_to_half) {
            // φ = ((sᵏ − 1)/k − (s − 1))/(k − 1); the terms log s of both cancel
            value = (expm1_parts(k * log).minus_x * per_k - e.minus_x) * per_power;
        } else {
            // φ = ((s − 1) t − (s − 1 − t))/k, s − 1 − t = (s − 1 − log s) − (t − log s)
            value = (e.expm1 * t - (e.minus_x - power.x_minus * per_power)) * per_k;
        }
        return {select(positive, s, 0.0), select(positive, e.expm1, -1.0),
                select(positive, s / safe, 0.0), select(positive, value, phi_zero)};
    }
};

// A user's φ. custom.hpp calls its functions on arrays; the scalar calls here are for the few
// single values that a search needs. NaN means that the function raised an exception.
struct Custom {
    const Divergence& divergence;
    explicit Custom(const Divergence& custom) : divergence(custom) {}
    static double call(const ArrayFunction& f, double x) {
        double y = 0.0;
        return f(&x, &y, 1) ? y : std::nan("");
    }
    double phi(double s) const {
        return call(divergence.phi, s) - divergence.slope_one * (s - 1.0);
    }
    double slope(double s) const {
        return call(divergence.dphi, s) - divergence.slope_one - divergence.origin;
    }
};

// Calls f with the class of a divergence.
template <class F>
auto visit(const Divergence& divergence, F f) {
    switch (divergence.family) {
        case Family::chi2: return f(ChiSquare(divergence));
        case Family::kl: return f(KullbackLeibler(divergence));
        case Family::total_variation: return f(TotalVariation(divergence));
        case Family::cvar: return f(ConditionalValueAtRisk(divergence));
        case Family::reverse_kl: return f(ReverseKL(divergence));
        case Family::hellinger: return f(Hellinger(divergence));
        case Family::jensen_shannon: return f(JensenShannon(divergence));
        case Family::triangular: return f(Triangular(divergence));
        case Family::cressie_read:
            if (divergence.origin == 0.0) return f(CressieRead<Powers::next_to_one>(divergence));
            if (divergence.parameter > 0.5) return f(CressieRead<Powers::above_half>(divergence));
            return f(CressieRead<Powers::up_to_half>(divergence));
        default: return f(Custom(divergence));
    }
}

// φ(s) for s ≥ 0.
inline double phi_of(const Divergence& divergence, double s) {
    if (s == 0.0) return divergence.phi_zero;
    return visit(divergence, [s](const auto& phi) { return phi.phi(s); });
}

}  // namespace TARGET
}  // namespace drolearn
