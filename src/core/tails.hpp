// Sums over the largest losses: the losses in decreasing order, and the sums
//
//     Mⱼ(η) = Σ b (z − η)₊ʲ,    j = 0 ... 4,
//
// at each of them. The worst cases of χ² balls of any radius follow from these.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <utility>
#include <vector>

#include "threads.hpp"
#include "types.hpp"

namespace drolearn {

// A number whose bits, as an integer, fall as x grows; the inverse of itself. Larger bits mean a
// larger positive number, and a smaller negative one.
inline double falling(double x) {
    constexpr uint64_t sign = uint64_t{1} << 63;
    const auto bits = std::bit_cast<uint64_t>(x);
    return std::bit_cast<double>(bits & sign ? bits : ~bits & ~sign);
}

// Writes z in decreasing order to `out`; false if interrupted. A radix sort: stable passes, one for
// each byte of a key from the lowest to the highest. Its time is linear in n; numpy's sort takes
// one to four times as long, depending on the processor. Keys are kept as doubles, so that `out` is
// one of the two arrays that the passes need.
inline bool sort_down(const double* z, size_t n, double* out, Workers& workers) {
    constexpr size_t bytes = 8, values = 256;
    const auto digit = [](double key, size_t byte) {
        return std::bit_cast<uint64_t>(key) >> 8 * byte & (values - 1);
    };
    std::vector<double> spare(n);
    double *from = out, *to = spare.data();
    size_t places[bytes][values] = {};  // counts first, then positions
    const auto each_chunk = [&](auto&& body) {
        return workers.run(chunk_count(n), [&](size_t k) {
            const size_t start = k * chunk_size;
            body(start, std::min(n, start + chunk_size));
        });
    };
    bool going = each_chunk([&, from](size_t start, size_t stop) {
        for (size_t i = start; i < stop; ++i) {
            from[i] = falling(z[i]);
            for (size_t byte = 0; byte < bytes; ++byte) ++places[byte][digit(from[i], byte)];
        }
    });
    for (size_t byte = 0; going && byte < bytes; ++byte) {
        size_t* place = places[byte];
        size_t before = 0;
        bool all_equal = false;
        for (size_t value = 0; value < values; ++value) {
            all_equal |= place[value] == n;
            before += std::exchange(place[value], before);
        }
        if (all_equal) continue;
        going = each_chunk([=](size_t start, size_t stop) {
            for (size_t i = start; i < stop; ++i) to[place[digit(from[i], byte)]++] = from[i];
        });
        std::swap(from, to);
    }
    return going && each_chunk([=](size_t start, size_t stop) {
               for (size_t i = start; i < stop; ++i) out[i] = falling(from[i]);
           });
}

// Writes Mⱼ(zᵢ) for sorted losses to out[j][i]; false if interrupted. A step d down,
//
//     Mⱼ(η − d) = Σₖ C(j, k) dʲ⁻ᵏ Mₖ(η),
//
// so all terms are positive and nothing cancels.
inline bool tail_sums(const Losses& losses, double* out, Workers& workers) {
    const size_t n = losses.n;
    double m0 = 0, m1 = 0, m2 = 0, m3 = 0, m4 = 0;
    return workers.run(chunk_count(n), [&](size_t chunk) {
        const size_t start = chunk * chunk_size, stop = std::min(n, start + chunk_size);
        for (size_t i = start; i < stop; ++i) {
            const double d = i == 0 ? 0.0 : losses.z[i - 1] - losses.z[i];
            m4 += d * (4 * m3 + d * (6 * m2 + d * (4 * m1 + d * m0)));
            m3 += d * (3 * m2 + d * (3 * m1 + d * m0));
            m2 += d * (2 * m1 + d * m0);
            m1 += d * m0;
            m0 += losses.b[i];
            const double sums[] = {m0, m1, m2, m3, m4};
            for (size_t j = 0; j < 5; ++j) out[j * n + i] = sums[j];
        }
    });
}

}  // namespace drolearn
