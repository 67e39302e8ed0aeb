// Kernels are compiled once for every processor and, on x86-64, again for AVX2 with FMA and for
// AVX-512.
// TARGET is the namespace of the current compilation. kernels.cpp makes a table of function
// pointers for each; processor.cpp selects the best one that the processor can run.
#pragma once

#ifndef TARGET
#define TARGET portable
#endif

// PER_NUMBER functions are always inlined: loops that call them would not vectorise otherwise.
// PER_CHUNK functions are never inlined: they are compiled once, so every caller gets the same
// bits.
#if defined(__GNUC__) || defined(__clang__)
#define PER_NUMBER [[gnu::always_inline]] inline
#define PER_CHUNK [[gnu::noinline]]
#else
#define PER_NUMBER __forceinline
#define PER_CHUNK __declspec(noinline)
#endif
