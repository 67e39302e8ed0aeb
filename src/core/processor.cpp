// Selects the table of kernels for the processor.
#include "kernels.hpp"

#if defined(DROLEARN_X86_LEVELS)
#if defined(_MSC_VER) && !defined(__clang__)
#include <intrin.h>
#else
#include <cpuid.h>
#endif
#endif

namespace drolearn {

namespace portable {
const Kernels& get();
}

const Kernels& portable_kernels() { return portable::get(); }

#if defined(DROLEARN_X86_LEVELS)

namespace avx2 {
const Kernels& get();
}
namespace avx512 {
const Kernels& get();
}

namespace {

struct Registers {
    unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
};

Registers cpuid(unsigned leaf) {
    Registers r;
#if defined(_MSC_VER) && !defined(__clang__)
    int v[4];
    __cpuidex(v, static_cast<int>(leaf), 0);
    r = {unsigned(v[0]), unsigned(v[1]), unsigned(v[2]), unsigned(v[3])};
#else
    __get_cpuid_count(leaf, 0, &r.eax, &r.ebx, &r.ecx, &r.edx);
#endif
    return r;
}

// The registers that the operating system saves for each thread. AVX2 can be used only if bits 1
// and 2 (XMM and YMM) are set, AVX-512 only if bits 5 to 7 (masks and ZMM) are set too.
unsigned long long saved_state() {
#if defined(_MSC_VER) && !defined(__clang__)
    return _xgetbv(0);
#else
    unsigned low, high;
    __asm__("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return (static_cast<unsigned long long>(high) << 32) | low;
#endif
}

// x86-64-v3: AVX2, FMA, BMI1 and BMI2, LZCNT, MOVBE and F16C.
bool has_avx2() {
    const Registers one = cpuid(1), seven = cpuid(7), extended = cpuid(0x80000001);
    constexpr unsigned fma = 1u << 12, movbe = 1u << 22, osxsave = 1u << 27, avx = 1u << 28,
                       f16c = 1u << 29;
    constexpr unsigned wanted = fma | movbe | osxsave | avx | f16c;
    if ((one.ecx & wanted) != wanted || (saved_state() & 6) != 6) return false;
    constexpr unsigned bmi1 = 1u << 3, avx2 = 1u << 5, bmi2 = 1u << 8, lzcnt = 1u << 5;
    constexpr unsigned more = bmi1 | avx2 | bmi2;
    return (seven.ebx & more) == more && (extended.ecx & lzcnt) == lzcnt;
}

// x86-64-v4: v3, and AVX-512 with F, DQ, CD, BW and VL.
bool has_avx512() {
    if (!has_avx2() || (saved_state() & 0xe6) != 0xe6) return false;
    constexpr unsigned wanted = 1u << 16 | 1u << 17 | 1u << 28 | 1u << 30 | 1u << 31;
    return (cpuid(7).ebx & wanted) == wanted;
}

}  // namespace

const Kernels& kernels() {
    static const Kernels& best = has_avx512() ? avx512::get()
                                 : has_avx2() ? avx2::get()
                                              : portable::get();
    return best;
}

#else

const Kernels& kernels() { return portable::get(); }

#endif

}  // namespace drolearn
