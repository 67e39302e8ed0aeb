// The divergences, one small class each. This is the only file of the core that lists them.
//
//     phi(s)    φ(s) for s > 0, to the last digits
//     bend(s)   1/φ''(s): how fast s follows its tilt t = φ'(s)
//
// Divergences that are solved as curves (curve.hpp) also know
//
//     tilt(s)   x = φ'(s) − origin
//     at(x)     s, ds/dt and φ(s) at t = origin + x, written so that loops vectorise
#pragma once

#include <cmath>
#include <string_view>
#include <utility>

#include "elementary.hpp"
#include "target.hpp"
#include "types.hpp"

namespace drolearn {

enum class Family {
    chi2,
    kl,
    total_variation,
    cvar,
    reverse_kl,
    hellinger,
    jensen_shannon,
    cressie_read,
    custom,
};

// A divergence.
struct Divergence {
    Family family = Family::chi2;
    double parameter = 0;  // the power k of Cressie-Read, the level of CVaR
    // Where the tilt is measured from: t = origin + x. It is the slope of φ at infinity where
    // that is finite (or the slope at zero for steep powers), so that x keeps its relative
    // precision where s is very large (or very small).
    double origin = 0;
    double phi_zero = 0;    // φ(0)
    double curvature = 1;   // φ''(1), or 1 where it is unknown
    bool straight = false;  // whether φ has straight pieces
    // The user's own φ. Solvers take φ'(1) for zero: s − 1 times any number changes no D.
    double slope_one = 0;
    Function phi, dphi, inverse;

    // Solved by methods of their own; all others are curves with two multipliers.
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
    {"cressie-read", Family::cressie_read},
    {"custom", Family::custom},
};

namespace TARGET {

// A point of a curve.
struct CurvePoint {
    double s, ds, phi;
};

struct ChiSquare {
    explicit ChiSquare(const Divergence&) {}
    double phi(double s) const { return (s - 1.0) * (s - 1.0); }
    double bend(double) const { return 0.5; }
};

struct KullbackLeibler {
    explicit KullbackLeibler(const Divergence&) {}
    double phi(double s) const { return s * std::log(s) - s + 1.0; }
    double bend(double s) const { return s; }
};

struct TotalVariation {
    explicit TotalVariation(const Divergence&) {}
    double phi(double s) const { return 0.5 * std::fabs(s - 1.0); }
    double bend(double) const { return 0.0; }
};

struct ConditionalValueAtRisk {
    double level;
    explicit ConditionalValueAtRisk(const Divergence& divergence) : level(divergence.parameter) {}
    double phi(double s) const { return s <= 1.0 / level ? 0.0 : infinity; }
    double bend(double) const { return 0.0; }
};

// φ = s − 1 − log s, φ' = 1 − 1/s.
struct ReverseKL {
    explicit ReverseKL(const Divergence&) {}
    double phi(double s) const { return s - 1.0 - std::log(s); }
    double bend(double s) const { return s * s; }
    double tilt(double s) const { return -1.0 / s; }
    PER_NUMBER CurvePoint at(double x) const {
        const double s = -1.0 / x;
        return {s, s * s, s - 1.0 + fast_log(-x)};
    }
};

// φ = ½ (√s − 1)², φ' = ½ − ½/√s.
struct Hellinger {
    explicit Hellinger(const Divergence&) {}
    double phi(double s) const {
        const double q = std::sqrt(s) - 1.0;
        return 0.5 * q * q;
    }
    double bend(double s) const { return 4.0 * s * std::sqrt(s); }
    double tilt(double s) const { return -0.5 / std::sqrt(s); }
    PER_NUMBER CurvePoint at(double x) const {
        const double q = -0.5 / x;
        return {q * q, 4.0 * q * q * q, 0.5 * (q - 1.0) * (q - 1.0)};
    }
};

// φ = ½ (s log s − (1 + s) log((1 + s)/2)), φ' = ½ log 2s/(1 + s).
struct JensenShannon {
    double origin;
    explicit JensenShannon(const Divergence& divergence) : origin(divergence.origin) {}
    double phi(double s) const {
        return 0.5 * (s * std::log(s) - (1.0 + s) * std::log(0.5 * (1.0 + s)));
    }
    double bend(double s) const { return 2.0 * s * (1.0 + s); }
    double tilt(double s) const { return -0.5 * std::log1p(1.0 / s); }
    PER_NUMBER CurvePoint at(double x) const {
        const auto [scale, rest] = exp_parts(2.0 * x);
        const double s = (scale + scale * rest) / -(scale * rest + (scale - 1.0));
        // φ(s) = s t − ½ log((1 + s)/2), as log(2s/(1 + s)) = 2t
        return {s, 2.0 * s * (1.0 + s), s * (origin + x) - 0.5 * fast_log(0.5 + 0.5 * s)};
    }
};

// φ = (sᵏ − k s + k − 1)/(k (k − 1)), φ' = (s^(k−1) − 1)/(k − 1).
//
// Next to k = 1 the tilt is measured from zero, and s^(k−1) = 1 + (k − 1) x; elsewhere it is
// measured from the pole or zero of s, and s^(k−1) = (k − 1) x. Up to k = ½, φ is written such that
// it is exact next to k = 0, above that such that it is exact next to k = 1.
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
    double bend(double s) const { return std::pow(s, 2.0 - k); }
    double tilt(double s) const {
        if (origin == 0.0) return std::expm1((k - 1.0) * std::log(s)) / (k - 1.0);
        return std::pow(s, k - 1.0) / (k - 1.0);
    }
    PER_NUMBER CurvePoint at(double x) const {
        const double step = (k - 1.0) * x;
        const double base = powers == Powers::next_to_one ? 1.0 + step : step;
        const bool positive = base > 1e-300;
        const double safe = select(positive, base, 1.0);
        double log = fast_log(safe);
        if (powers == Powers::next_to_one) {  // makes up for the rounding of 1 + step
            const double rounded = safe - 1.0;
            log *= select(rounded != 0.0, step / rounded, 1.0);
        }
        log *= per_power;
        const double s = fast_exp(select(log > 709.0, 709.0, log));
        double value;
        if (powers == Powers::up_to_half) {
            value = (fast_expm1(k * log) * per_k - (s - 1.0)) * per_power;
        } else {
            value = (1.0 - s + s * (origin + x)) * per_k;
        }
        return {select(positive, s, 0.0), select(positive, s / safe, 0.0),
                select(positive, value, phi_zero)};
    }
};

// The user's own φ: functions of arrays, called on many losses at once (curve.hpp). The single
// values here are for the few that a search asks for; NaN stands for a function that raised.
struct Custom {
    const Divergence& divergence;
    explicit Custom(const Divergence& own) : divergence(own) {}
    static double call(const Function& f, double x) {
        double y = 0.0;
        return f(&x, &y, 1) ? y : std::nan("");
    }
    double phi(double s) const {
        return call(divergence.phi, s) - divergence.slope_one * (s - 1.0);
    }
    double tilt(double s) const {
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
