/* What the C kernels share: registers of AVX-512, masks for the ends of rows, the exponential function. */

#pragma once
#include <immintrin.h>

#define WIDTH 16 /* float32 values per register */
#define ALL _Pragma("GCC unroll 8") /* unroll loops, so that the arrays they index can be in registers */
#define INLINE static inline __attribute__((always_inline))

/* A mask of the lanes that `left` values fill. */
INLINE __mmask16 lanes(long left) { return left >= WIDTH ? 0xffff : left <= 0 ? 0 : (__mmask16)((1u << left) - 1); }

/* e^x as 2^n · e^r with |r| <= ln 2 / 2 and a polynomial for e^r: within 3 units in the last place. -inf gives 0. */
INLINE __m512 exponential(__m512 x) {
    x = _mm512_max_ps(_mm512_set1_ps(-110.0f), x); /* this order keeps NaN */
    __m512 n = _mm512_roundscale_ps(_mm512_mul_ps(x, _mm512_set1_ps(1.44269504f)), _MM_FROUND_TO_NEAREST_INT | 8);
    __m512 r = _mm512_fnmadd_ps(n, _mm512_set1_ps(0.693359375f), x);
    r = _mm512_fnmadd_ps(n, _mm512_set1_ps(-2.12194440e-4f), r);
    __m512 p = _mm512_set1_ps(1.0f / 720);
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.0f / 120));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.0f / 24));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.0f / 6));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(0.5f));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.0f));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.0f));
    return _mm512_scalef_ps(p, n);
}
