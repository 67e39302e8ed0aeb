// exp, expm1, log, log1p, and the differences eˣ − 1 − x and x − log(1 + x).
//
// They use only additions, products and shifts, so loops over them vectorise; the functions of the
// C library do not. exp, expm1, log and log1p are accurate to about one unit in the last place. The
// polynomials are Chebyshev fits with remainders below 2e-17.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>

#include "target.hpp"

namespace drolearn::TARGET {

using std::size_t;

// condition ? yes : no, without a branch. Compilers turn some conditional expressions into jumps,
// and loops with jumps do not vectorise.
PER_NUMBER double select(bool condition, double yes, double no) {
    const uint64_t mask = -static_cast<uint64_t>(condition);
    return std::bit_cast<double>((std::bit_cast<uint64_t>(yes) & mask) |
                                 (std::bit_cast<uint64_t>(no) & ~mask));
}

// Σ cₖ xᵏ by Estrin's scheme: sums of two terms, then of four, and so on. These do not wait for
// each other as those of Horner's scheme do, so loops take about half the time.
template <size_t n>
PER_NUMBER double polynomial(double x, const double (&c)[n]) {
    static_assert(4 < n && n <= 10);
    const auto term = [&](size_t k) { return k < n ? c[k] : 0.0; };
    const double x2 = x * x, x4 = x2 * x2;
    const double low = (c[0] + c[1] * x) + (c[2] + c[3] * x) * x2;
    double high = c[4] + term(5) * x;
    if constexpr (n > 6) high += (term(6) + term(7) * x) * x2;
    if constexpr (n > 8) high += (term(8) + term(9) * x) * x4;
    return low + high * x4;
}

// 1.5·2⁵². Adding it to a number below 2⁵¹ in size leaves the nearest integer in the low bits.
inline constexpr double shifter = 6755399441055744.0;
// log 2 in two parts. The first ends in zero bits, so n·log2_high is exact.
inline constexpr double log2_high = 0.693147180369123816490;
inline constexpr double log2_low = 1.90821492927058770002e-10;

// eˣ = scale (1 + expm1), where scale = 2ⁿ and expm1 = eʳ − 1 = r + tail.
struct ExpParts {
    double scale, expm1, tail;
};

// n = round(x/log 2), r = x − n log 2, eʳ by its polynomial, for x ≤ 709. Below −708.7, n is −1023
// and the bits of 2ⁿ are those of zero.
PER_NUMBER ExpParts exp_parts(double x) {
    const double y = select(x < -709.09, -709.09, x);
    const double shifted = y * 1.4426950408889634 + shifter;
    const double n = shifted - shifter;
    const double r = (y - n * log2_high) - n * log2_low;
    const double p =
        polynomial(r, {0.5, 0.16666666666666669, 0.04166666666662413, 0.008333333333330062,
                       0.0013888888917213717, 0.00019841269863053618, 2.4801521295954376e-05,
                       2.7557268459997064e-06, 2.7620088445409746e-07, 2.510038549551032e-08});
    const uint64_t bits = std::bit_cast<uint64_t>(1.0) + (std::bit_cast<uint64_t>(shifted) << 52);
    const double tail = p * (r * r);
    return {std::bit_cast<double>(bits), r + tail, tail};
}

// eˣ for x ≤ 709; zero below −708.7.
PER_NUMBER double fast_exp(double x) {
    const ExpParts e = exp_parts(x);
    return e.scale + e.scale * e.expm1;
}

// eˣ − 1 for x ≤ 709, accurate next to zero.
PER_NUMBER double fast_expm1(double x) {
    const ExpParts e = exp_parts(x);
    return e.scale * e.expm1 + (e.scale - 1.0);
}

// expm1 = eˣ − 1 and minus_x = eˣ − 1 − x, both with small relative error for every x ≤ 709.
struct Expm1 {
    double expm1, minus_x;
};

PER_NUMBER Expm1 expm1_parts(double x) {
    const ExpParts e = exp_parts(x);
    const double expm1 = e.scale * e.expm1 + (e.scale - 1.0);
    // For |x| < ½ log 2, n = 0 and r = x, so the difference is the tail of the polynomial.
    return {expm1, select(e.scale == 1.0, e.tail, expm1 - x)};
}

// log m for √½ ≤ m ≤ √2 with f = m − 1: log m = 2 artanh q, q = f/(2 + f). This is f − log m.
PER_NUMBER double minus_log_near_one(double f, double m_plus_one) {
    const double q = f / m_plus_one;
    const double w = q * q;
    const double p = polynomial(
        w, {0.666666666666667, 0.39999999999899444, 0.2857142862600327, 0.22222211130259878,
            0.18182889455674947, 0.15331710618210773, 0.14616585424888623});
    return q * (f - w * p);  // 2q = f − q f
}

// log x for x ≥ 2.3e-308: x = 2ⁿ m with √½ ≤ m ≤ √2.
PER_NUMBER double fast_log(double x) {
    // The exponent plus 1024 is not negative: logical shifts vectorise, arithmetic ones do not.
    const uint64_t bits = std::bit_cast<uint64_t>(x);
    const uint64_t n = (bits - 0x3FE6A09E667F3BCD + (uint64_t{1024} << 52)) >> 52;
    const double m = std::bit_cast<double>(bits - ((n - 1024) << 52));
    // n − 1024 as a double, from the low bits of the shifter.
    const double k = std::bit_cast<double>(n + 0x4338000000000000) - (shifter + 1024.0);
    const double f = m - 1.0;
    // The leading term f is exact.
    return k * log2_high + (f - minus_log_near_one(f, m + 1.0) + k * log2_low);
}

// log1p = log(1 + x) and x_minus = x − log(1 + x), both with small relative error, for x > −1. The
// caller passes 1 + x too, which it may know more accurately than x where x is next to −1.
struct Log1p {
    double log1p, x_minus;
};

PER_NUMBER Log1p log1p_parts(double x, double one_plus_x) {
    const bool near_one = (x > -0.29) & (x < 0.41);
    const double f = select(near_one, x, 0.0);
    const double x_minus = minus_log_near_one(f, f + 2.0);
    const double log = fast_log(one_plus_x);
    return {select(near_one, f - x_minus, log), select(near_one, x_minus, x - log)};
}

// log(1 + e) = 2 artanh(e/(2 + e)) for 0 ≤ e ≤ 1, without range reduction.
PER_NUMBER double fast_log1p(double e) {
    const double q = e / (2.0 + e);
    const double w = q * q;
    const double p = polynomial(
        w, {0.6666666666666666, 0.40000000000014596, 0.2857142856710506, 0.22222222717801782,
            0.18181789417326447, 0.15385570592912243, 0.13314135550881162, 0.12001155182857778,
            0.08800317650868773, 0.16164938169471338});
    return q * w * p + 2.0 * q;
}

}  // namespace drolearn::TARGET
