// The kernels are compiled once for every processor and, on x86-64, once more for those with AVX2
// and FMA. TARGET is the namespace of the one being compiled; kernels.cpp makes a table of each,
// and bindings.cpp takes the best that the processor at hand can run.
#pragma once

#ifndef TARGET
#define TARGET portable
#endif

// What is done to one number becomes part of the loop around it, or loops do not vectorise; what is
// done to one chunk is compiled once, so that its bits do not depend on who calls it.
#if defined(__GNUC__) || defined(__clang__)
#define PER_NUMBER [[gnu::always_inline]] inline
#define PER_CHUNK [[gnu::noinline]]
#else
#define PER_NUMBER __forceinline
#define PER_CHUNK __declspec(noinline)
#endif
