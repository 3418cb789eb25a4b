/* Kernels for a CPU with AVX-512 and VNNI, compiled on the machine they run on (c_library.py says how, and calls them).

   Each reads memory once, and again only while it is in the cache, where torch reads it several times. A row of a
   result does not depend on the other rows, as long as all are finite: the same operations in the same order compute
   it, however many rows there are.

   Threads share independent work: columns of a matmul, heads of attention, rows of a softmax. */

#include "avx512.h"
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define ALONE static __attribute__((noinline)) void

/* ---- y = x Wᵀ + b in int8 -------------------------------------------------------------------------------------- */

#define PANEL 64 /* columns of W that are multiplied together */
#define ROWS 6   /* rows of x: 6 · 64 sums fill 24 of the 32 registers */

/* Prepack W for `int8_linear`: in panels of 64 outputs, with the values of four inputs adjacent for each output. The
   instruction takes one unsigned factor, so x is stored with an offset of 128: `totals` is what that adds to each sum. */
void prepack_int8(const int8_t *weight, long outputs, long inputs, int8_t *packed, int32_t *totals) {
    long fours = (inputs + 3) / 4, panels = (outputs + PANEL - 1) / PANEL;
    memset(packed, 0, panels * PANEL * fours * 4);
    memset(totals, 0, panels * PANEL * sizeof *totals);
    for (long o = 0; o < outputs; o++) {
        int8_t *panel = packed + o / PANEL * PANEL * fours * 4 + o % PANEL * 4;
        for (long i = 0; i < inputs; i++) {
            panel[i / 4 * PANEL * 4 + i % 4] = weight[o * inputs + i];
            totals[o] += 128 * weight[o * inputs + i];
        }
    }
}

/* Quantize a row to unsigned integers with zero point 128; returns the scale, NaN if any value is NaN or infinite. */
INLINE float quantize(const float *x, long inputs, uint8_t *integers) {
    __m512 largest = _mm512_setzero_ps(), nothing = _mm512_setzero_ps();
    for (long i = 0; i < inputs; i += WIDTH) {
        __m512 some = _mm512_maskz_loadu_ps(lanes(inputs - i), x + i);
        largest = _mm512_max_ps(largest, _mm512_abs_ps(some));
        nothing = _mm512_add_ps(nothing, _mm512_sub_ps(some, some)); /* infinity - infinity is NaN */
    }
    float scale = _mm512_reduce_max_ps(largest) / 127;
    scale = (scale < 1e-30f ? 1e-30f : scale) + _mm512_reduce_add_ps(nothing);
    for (long i = 0; i < inputs; i += WIDTH) {
        __m512 some = _mm512_div_ps(_mm512_maskz_loadu_ps(lanes(inputs - i), x + i), _mm512_set1_ps(scale));
        __m128i bytes = _mm512_cvtsepi32_epi8(_mm512_cvtps_epi32(some)); /* to the nearest, ties to even */
        _mm_mask_storeu_epi8(integers + i, lanes(inputs - i), _mm_xor_si128(bytes, _mm_set1_epi8(-128)));
    }
    return scale;
}

/* The sums of `count` rows with one panel. Each number of rows has a function of its own with nothing else in it, so
   that the compiler keeps all sums in registers. */
INLINE void add_dots(int count, const uint8_t *x, long fours, const int8_t *panel, int32_t *sums) {
    __m512i sum[ROWS][4];
    ALL for (int r = 0; r < count; r++) ALL for (int c = 0; c < 4; c++) sum[r][c] = _mm512_setzero_si512();
    for (long i = 0; i < fours; i++) {
        __m512i weight[4];
        ALL for (int c = 0; c < 4; c++) weight[c] = _mm512_loadu_si512(panel + (i * 4 + c) * 64);
        ALL for (int r = 0; r < count; r++) {
            int32_t four;
            memcpy(&four, x + (r * fours + i) * 4, 4);
            __m512i each = _mm512_set1_epi32(four);
            ALL for (int c = 0; c < 4; c++) sum[r][c] = _mm512_dpbusd_epi32(sum[r][c], each, weight[c]);
        }
    }
    ALL for (int r = 0; r < count; r++)
        ALL for (int c = 0; c < 4; c++) _mm512_storeu_si512(sums + r * PANEL + c * WIDTH, sum[r][c]);
}

#define ROWS_OF(count)                                                                                                 \
    ALONE add_##count(const uint8_t *x, long fours, const int8_t *panel, int32_t *sums) {                              \
        add_dots(count, x, fours, panel, sums);                                                                    \
    }
ROWS_OF(1) ROWS_OF(2) ROWS_OF(3) ROWS_OF(4) ROWS_OF(5) ROWS_OF(6)

typedef void Add(const uint8_t *x, long fours, const int8_t *panel, int32_t *sums);
static Add *const ADD[] = {NULL, add_1, add_2, add_3, add_4, add_5, add_6};

/* y = (integer x · integer W) · scale of the row · scale of the output + bias, if there is one. */
void int8_linear(const float *x, long rows, long inputs, const int8_t *packed, const int32_t *totals, const float *scales,
              const float *bias, float *y, long outputs, int threads) {
    long fours = (inputs + 3) / 4, panels = (outputs + PANEL - 1) / PANEL;
    uint8_t *integers = malloc(rows * fours * 4);
    float *row_scales = malloc(rows * sizeof *row_scales);
#pragma omp parallel for num_threads(threads) if (threads > 1 && rows > 1)
    for (long r = 0; r < rows; r++) row_scales[r] = quantize(x + r * inputs, inputs, integers + r * fours * 4);
#pragma omp parallel for num_threads(threads) if (threads > 1)
    for (long p = 0; p < panels; p++)
        for (long r = 0; r < rows; r += ROWS) {
            int32_t sums[ROWS * PANEL];
            int count = rows - r < ROWS ? rows - r : ROWS;
            ADD[count](integers + r * fours * 4, fours, packed + p * PANEL * fours * 4, sums);
            for (long c = p * PANEL; c < outputs && c < (p + 1) * PANEL; c += WIDTH) {
                __mmask16 here = lanes(outputs - c);
                __m512 scale = _mm512_maskz_loadu_ps(here, scales + c);
                __m512 shift = bias ? _mm512_maskz_loadu_ps(here, bias + c) : _mm512_setzero_ps();
                __m512i total = _mm512_loadu_si512(totals + c);
                for (int k = 0; k < count; k++) {
                    __m512i sum = _mm512_sub_epi32(_mm512_loadu_si512(sums + k * PANEL + c % PANEL), total);
                    __m512 value = _mm512_mul_ps(_mm512_cvtepi32_ps(sum), _mm512_set1_ps(row_scales[r + k]));
                    _mm512_mask_storeu_ps(y + (r + k) * outputs + c, here, _mm512_fmadd_ps(value, scale, shift));
                }
            }
        }
    free(row_scales);
    free(integers);
}

/* ---- y = x Wᵀ + b in float32 ------------------------------------------------------------------------------------- */

/* Prepack W for `matmul`: in panels of 64 outputs, with the values of one input adjacent. The last panel is padded with
   zeros. W may be transposed: `output_step` and `input_step` are its strides. 16 inputs are packed at a time, so that
   a cache line is used completely before it is evicted. */
void prepack(const float *weight, long outputs, long inputs, long output_step, long input_step, float *packed,
                 int threads) {
    __m512i apart = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    apart = _mm512_mullo_epi32(apart, _mm512_set1_epi32((int)output_step));
#pragma omp parallel for num_threads(threads) if (threads > 1)
    for (long first = 0; first < outputs; first += PANEL)
        for (long begin = 0; begin < inputs; begin += WIDTH)
            for (long part = first; part < first + PANEL; part += WIDTH)
                for (long i = begin; i < inputs && i < begin + WIDTH; i++) {
                    const float *from = weight + part * output_step + i * input_step;
                    __mmask16 here = lanes(outputs - part);
                    __m512 numbers = output_step == 1 ? _mm512_maskz_loadu_ps(here, from)
                                                      : _mm512_mask_i32gather_ps(_mm512_setzero_ps(), here, apart, from, 4);
                    _mm512_storeu_ps(packed + first * inputs + i * PANEL + part - first, numbers);
                }
}

#define NEAR (640 << 10) /* bytes that stay in the L2 cache of a core, beside other data */

/* The arguments of a matmul. */
typedef struct {
    const float *x;        /* with these strides of rows and of inputs: */
    long x_row, x_column, inputs;
    const float *packed;
    const float *start;    /* initial values of the sums, or NULL: one row for all (start_row = 0), or one per row */
    long start_row;
    float *y;
    long outputs;
} Matmul;

/* Multiply `count` rows from `row` on by the panel at `column`. As above, each number of rows has its own function. */
INLINE void multiply_rows(int count, const Matmul *p, long row, long column) {
    const float *x = p->x + row * p->x_row, *panel = p->packed + column * p->inputs;
    long left = p->outputs - column, x_row = p->x_row, x_column = p->x_column, inputs = p->inputs;
    __m512 sum[ROWS][4];
    ALL for (int r = 0; r < count; r++)
        ALL for (int c = 0; c < 4; c++) {
            const float *start = p->start + (row + r) * p->start_row + column + c * WIDTH;
            sum[r][c] = p->start ? _mm512_maskz_loadu_ps(lanes(left - c * WIDTH), start) : _mm512_setzero_ps();
        }
    for (long i = 0; i < inputs; i++) {
        __m512 weight[4];
        ALL for (int c = 0; c < 4; c++) weight[c] = _mm512_loadu_ps(panel + i * PANEL + c * WIDTH);
        ALL for (int r = 0; r < count; r++) {
            __m512 each = _mm512_set1_ps(x[r * x_row + i * x_column]);
            ALL for (int c = 0; c < 4; c++) sum[r][c] = _mm512_fmadd_ps(each, weight[c], sum[r][c]);
        }
    }
    float *y = p->y + row * p->outputs + column;
    ALL for (int r = 0; r < count; r++)
        ALL for (int c = 0; c < 4; c++)
            _mm512_mask_storeu_ps(y + r * p->outputs + c * WIDTH, lanes(left - c * WIDTH), sum[r][c]);
}

#define FLOATS_OF(count)                                                                                               \
    ALONE multiply_##count(const Matmul *p, long row, long column) { multiply_rows(count, p, row, column); }
FLOATS_OF(1) FLOATS_OF(2) FLOATS_OF(3) FLOATS_OF(4) FLOATS_OF(5) FLOATS_OF(6)

typedef void Multiply(const Matmul *p, long row, long column);
static Multiply *const MULTIPLY[] = {
    NULL, multiply_1, multiply_2, multiply_3, multiply_4, multiply_5, multiply_6};

/* All rows are multiplied by a panel before the next one: it stays in the cache of its core. Where all panels fit there
   and x is transposed, a few rows are multiplied by all panels instead: reads of x are strided and better done once. */
void matmul(const Matmul *p, long rows, int threads) {
    long panels = (p->outputs + PANEL - 1) / PANEL, groups = (rows + ROWS - 1) / ROWS;
    int by_rows = p->x_column != 1 && panels * PANEL * p->inputs * (long)sizeof(float) <= NEAR;
#pragma omp parallel for num_threads(threads) if (threads > 1)
    for (long k = 0; k < panels * groups; k++) {
        long panel = by_rows ? k % panels : k / groups, row = (by_rows ? k / panels : k % groups) * ROWS;
        MULTIPLY[rows - row < ROWS ? rows - row : ROWS](p, row, panel * PANEL);
    }
}

/* ---- softmax(Q Kᵀ / √key_dim + mask) V for a few queries -------------------------------------------------------- */

#define QUERIES 6        /* queries that are computed together */
#define BLOCK (2 * WIDTH) /* keys, or dimensions of a value, that are computed together */

typedef struct {
    long batch, heads, queries, keys, key_dim, value_dim;
    long query_batch, query_head, query_row; /* strides; a query is contiguous */
    long key_batch, key_head, key_row;       /* keys are transposed: a row has one dimension of every key */
    long value_batch, value_head, value_row;
    long mask_batch, mask_row; /* shared by all heads; the strides may be 0 */
} Shape;

/* Q Kᵀ of `count` queries and all keys of one head; the rows of the result are padded to a multiple of 32. */
INLINE void score(int count, const Shape *s, const float *query, const float *keys, float *scores, long row) {
    long query_row = s->query_row, key_row = s->key_row, key_dim = s->key_dim;
    for (long k = 0; k < row; k += BLOCK) {
        __mmask16 here = lanes(s->keys - k), next = lanes(s->keys - k - WIDTH);
        __m512 sum[QUERIES][2];
        ALL for (int q = 0; q < count; q++) sum[q][0] = sum[q][1] = _mm512_setzero_ps();
        for (long d = 0; d < key_dim; d++) {
            __m512 first = _mm512_maskz_loadu_ps(here, keys + d * key_row + k);
            __m512 second = _mm512_maskz_loadu_ps(next, keys + d * key_row + k + WIDTH);
            ALL for (int q = 0; q < count; q++) {
                __m512 each = _mm512_set1_ps(query[q * query_row + d]);
                sum[q][0] = _mm512_fmadd_ps(each, first, sum[q][0]);
                sum[q][1] = _mm512_fmadd_ps(each, second, sum[q][1]);
            }
        }
        ALL for (int q = 0; q < count; q++) {
            _mm512_storeu_ps(scores + q * row + k, sum[q][0]);
            _mm512_storeu_ps(scores + q * row + k + WIDTH, sum[q][1]);
        }
    }
}

/* Scores to unnormalized weights, and the reciprocals of their sums. `alive` has a bit for each key that any of the
   queries attends to. */
INLINE void soften(int count, const Shape *s, float *scores, long row, const float *mask, float scale, float *shares,
                   __mmask16 *alive) {
    __m512 largest[QUERIES], total[QUERIES], times = _mm512_set1_ps(scale), never = _mm512_set1_ps(-INFINITY);
    ALL for (int q = 0; q < count; q++) largest[q] = never, total[q] = _mm512_setzero_ps();
    for (long k = 0; k < s->keys; k += WIDTH) {
        __mmask16 here = lanes(s->keys - k);
        ALL for (int q = 0; q < count; q++) {
            __m512 some = _mm512_mul_ps(_mm512_loadu_ps(scores + q * row + k), times);
            if (mask) some = _mm512_add_ps(some, _mm512_maskz_loadu_ps(here, mask + q * s->mask_row + k));
            some = _mm512_mask_blend_ps(here, never, some);
            largest[q] = _mm512_max_ps(some, largest[q]);
            _mm512_storeu_ps(scores + q * row + k, some);
        }
    }
    ALL for (int q = 0; q < count; q++) largest[q] = _mm512_set1_ps(_mm512_reduce_max_ps(largest[q]));
    for (long k = 0; k < s->keys; k += WIDTH) {
        __mmask16 here = lanes(s->keys - k), any = 0; /* no key beyond the last one, whatever the weights are */
        ALL for (int q = 0; q < count; q++) {
            __m512 some = exponential(_mm512_sub_ps(_mm512_loadu_ps(scores + q * row + k), largest[q]));
            total[q] = _mm512_add_ps(total[q], some);
            any |= _mm512_mask_cmp_ps_mask(here, some, _mm512_setzero_ps(), _CMP_NEQ_UQ);
            _mm512_storeu_ps(scores + q * row + k, some);
        }
        alive[k / WIDTH] = any;
    }
    ALL for (int q = 0; q < count; q++) shares[q] = 1 / _mm512_reduce_add_ps(total[q]);
}

/* Weights · V of `count` queries of one head. Hypotheses share slots, and no hypothesis sees many of them any more. */
INLINE void mix(int count, const Shape *s, const float *weights, long row, const float *shares, const __mmask16 *alive,
                const float *values, float *context) {
    long value_row = s->value_row, out = s->heads * s->value_dim;
    for (long d = 0; d < s->value_dim; d += BLOCK) {
        __mmask16 here = lanes(s->value_dim - d), next = lanes(s->value_dim - d - WIDTH);
        __m512 sum[QUERIES][2];
        ALL for (int q = 0; q < count; q++) sum[q][0] = sum[q][1] = _mm512_setzero_ps();
        for (long begin = 0; begin < s->keys; begin += WIDTH)
            for (unsigned left = alive[begin / WIDTH]; left; left &= left - 1) {
                long k = begin + __builtin_ctz(left);
                __m512 first = _mm512_maskz_loadu_ps(here, values + k * value_row + d);
                __m512 second = _mm512_maskz_loadu_ps(next, values + k * value_row + d + WIDTH);
                ALL for (int q = 0; q < count; q++) {
                    __m512 each = _mm512_set1_ps(weights[q * row + k]);
                    sum[q][0] = _mm512_fmadd_ps(each, first, sum[q][0]);
                    sum[q][1] = _mm512_fmadd_ps(each, second, sum[q][1]);
                }
            }
        ALL for (int q = 0; q < count; q++) {
            __m512 share = _mm512_set1_ps(shares[q]);
            _mm512_mask_storeu_ps(context + q * out + d, here, _mm512_mul_ps(sum[q][0], share));
            _mm512_mask_storeu_ps(context + q * out + d + WIDTH, next, _mm512_mul_ps(sum[q][1], share));
        }
    }
}

#define QUERIES_OF(count)                                                                                              \
    ALONE score_##count(const Shape *s, const float *query, const float *keys, float *scores, long row) {              \
        score(count, s, query, keys, scores, row);                                                                     \
    }                                                                                                                  \
    ALONE soften_##count(const Shape *s, float *scores, long row, const float *mask, float scale, float *shares,       \
                         __mmask16 *alive) {                                                                           \
        soften(count, s, scores, row, mask, scale, shares, alive);                                                     \
    }                                                                                                                  \
    ALONE mix_##count(const Shape *s, const float *weights, long row, const float *shares, const __mmask16 *alive,     \
                      const float *values, float *context) {                                                           \
        mix(count, s, weights, row, shares, alive, values, context);                                                   \
    }
QUERIES_OF(1) QUERIES_OF(2) QUERIES_OF(3) QUERIES_OF(4) QUERIES_OF(5) QUERIES_OF(6)

typedef void Score(const Shape *, const float *, const float *, float *, long);
typedef void Soften(const Shape *, float *, long, const float *, float, float *, __mmask16 *);
typedef void Mix(const Shape *, const float *, long, const float *, const __mmask16 *, const float *, float *);
static Score *const SCORE[] = {NULL, score_1, score_2, score_3, score_4, score_5, score_6};
static Soften *const SOFTEN[] = {NULL, soften_1, soften_2, soften_3, soften_4, soften_5, soften_6};
static Mix *const MIX[] = {NULL, mix_1, mix_2, mix_3, mix_4, mix_5, mix_6};

/* Decode attention. The context has the layout [batch, queries, heads, value_dim]. */
void decode_attention(const Shape *s, const float *queries, const float *keys, const float *values, const float *mask,
            float *context, int threads) {
    float scale = 1 / sqrtf((float)s->key_dim);
    long row = (s->keys + BLOCK - 1) / BLOCK * BLOCK;
#pragma omp parallel num_threads(threads) if (threads > 1)
    {
        float *weights = aligned_alloc(64, QUERIES * row * sizeof *weights), shares[QUERIES];
        __mmask16 *alive = malloc(row / WIDTH * sizeof *alive);
#pragma omp for
        for (long head = 0; head < s->batch * s->heads; head++) {
            long b = head / s->heads, h = head % s->heads;
            for (long q = 0; q < s->queries; q += QUERIES) {
                int count = s->queries - q < QUERIES ? s->queries - q : QUERIES;
                const float *query = queries + b * s->query_batch + h * s->query_head + q * s->query_row;
                SCORE[count](s, query, keys + b * s->key_batch + h * s->key_head, weights, row);
                const float *hidden = mask ? mask + b * s->mask_batch + q * s->mask_row : NULL;
                SOFTEN[count](s, weights, row, hidden, scale, shares, alive);
                MIX[count](s, weights, row, shares, alive, values + b * s->value_batch + h * s->value_head,
                           context + ((b * s->queries + q) * s->heads + h) * s->value_dim);
            }
        }
        free(alive);
        free(weights);
    }
}

/* ---- writes to the KV cache -------------------------------------------------------------------------------------- */

typedef struct {
    long batch, heads, width, key_dim, value_dim;
    long new_key_batch, new_key_head, new_key_row;
    long new_value_batch, new_value_head, new_value_row;
    long key_batch, key_head, key_row; /* keys are transposed; `width` of them from the first slot on */
    long value_batch, value_head, value_row;
} Slots;

void write_cache(const Slots *s, const float *new_keys, const float *new_values, float *keys, float *values) {
    for (long b = 0; b < s->batch; b++)
        for (long h = 0; h < s->heads; h++) {
            const float *from = new_keys + b * s->new_key_batch + h * s->new_key_head;
            float *to = keys + b * s->key_batch + h * s->key_head;
            for (long d = 0; d < s->key_dim; d++)
                for (long w = 0; w < s->width; w++) to[d * s->key_row + w] = from[w * s->new_key_row + d];
            from = new_values + b * s->new_value_batch + h * s->new_value_head;
            to = values + b * s->value_batch + h * s->value_head;
            for (long w = 0; w < s->width; w++)
                memcpy(to + w * s->value_row, from + w * s->new_value_row, s->value_dim * sizeof *to);
        }
}

/* ---- log softmax ------------------------------------------------------------------------------------------------- */

/* Sums are in double precision, which loses only the last bits of very small terms: the same logits in another order
   give the same log-probabilities, unless a probability is nearly 1, so ties of a search stay ties. */
void log_softmax(const float *logits, long rows, long words, long row, float *out, int threads) {
#pragma omp parallel for num_threads(threads) if (threads > 1)
    for (long r = 0; r < rows; r++) {
        const float *x = logits + r * row;
        __m512 most = _mm512_set1_ps(-INFINITY);
        for (long i = 0; i < words; i += WIDTH) {
            __mmask16 here = lanes(words - i);
            most = _mm512_mask_max_ps(most, here, _mm512_maskz_loadu_ps(here, x + i), most);
        }
        most = _mm512_set1_ps(_mm512_reduce_max_ps(most));
        __m512d low = _mm512_setzero_pd(), high = _mm512_setzero_pd();
        for (long i = 0; i < words; i += WIDTH) {
            __mmask16 here = lanes(words - i);
            __m512 some = exponential(_mm512_sub_ps(_mm512_maskz_loadu_ps(here, x + i), most));
            some = _mm512_maskz_mov_ps(here, some);
            low = _mm512_add_pd(low, _mm512_cvtps_pd(_mm512_castps512_ps256(some)));
            high = _mm512_add_pd(high, _mm512_cvtps_pd(_mm512_extractf32x8_ps(some, 1)));
        }
        __m512 shift = _mm512_set1_ps((float)log(_mm512_reduce_add_pd(_mm512_add_pd(low, high))));
        for (long i = 0; i < words; i += WIDTH) {
            __mmask16 here = lanes(words - i);
            __m512 some = _mm512_sub_ps(_mm512_sub_ps(_mm512_maskz_loadu_ps(here, x + i), most), shift);
            _mm512_mask_storeu_ps(out + r * words + i, here, some);
        }
    }
}

/* ---- fused cross-entropy: the loss of logits and its gradient ---------------------------------------------------- */

/* Each row becomes softmax - (1 - smoothing) · one-hot of its label, with its smoothed loss and its negative
   log-likelihood; a row labeled `pad` becomes zero and has no loss. Of three passes over a row, all but the first find
   it in the cache of its core. Differences from the maximum are summed, not logits, which may be large and nearly
   equal. */
void cross_entropy(float *logits, long rows, long words, long row, const int64_t *labels, long pad, double smoothing,
                      float *losses, float *nlls, int threads) {
#pragma omp parallel for num_threads(threads) if (threads > 1)
    for (long r = 0; r < rows; r++) {
        float *x = logits + r * row;
        losses[r] = nlls[r] = 0;
        if (labels[r] == pad) {
            memset(x, 0, words * sizeof *x);
            continue;
        }
        __m512 most = _mm512_set1_ps(-INFINITY), total = _mm512_setzero_ps(), below = _mm512_setzero_ps();
        for (long i = 0; i < words; i += WIDTH) {
            __mmask16 here = lanes(words - i);
            most = _mm512_mask_max_ps(most, here, _mm512_maskz_loadu_ps(here, x + i), most);
        }
        most = _mm512_set1_ps(_mm512_reduce_max_ps(most));
        double said = x[labels[r]] - _mm512_cvtss_f32(most);
        for (long i = 0; i < words; i += WIDTH) {
            __mmask16 here = lanes(words - i);
            __m512 some = _mm512_maskz_sub_ps(here, _mm512_maskz_loadu_ps(here, x + i), most);
            __m512 share = exponential(some);
            below = _mm512_add_ps(below, some);
            total = _mm512_mask_add_ps(total, here, total, share);
            _mm512_mask_storeu_ps(x + i, here, share);
        }
        double sum = _mm512_reduce_add_ps(total), nll = log(sum) - said;
        __m512 scale = _mm512_set1_ps((float)(1 / sum));
        for (long i = 0; i < words; i += WIDTH) {
            __mmask16 here = lanes(words - i);
            _mm512_mask_storeu_ps(x + i, here, _mm512_mul_ps(_mm512_maskz_loadu_ps(here, x + i), scale));
        }
        x[labels[r]] -= (float)(1 - smoothing);
        nlls[r] = losses[r] = (float)nll;
        if (smoothing > 0) { /* avoids 0 · infinity where a word is impossible */
            double even = log(sum) - (double)_mm512_reduce_add_ps(below) / words;
            losses[r] = (float)((1 - smoothing) * nll + smoothing * even);
        }
    }
}

/* ---- attention of short texts, forward and backward -------------------------------------------------------------- */

/* All data of one head is in the L1 and L2 caches, so its matmuls need no packing. */
typedef struct {
    long batch, heads, queries, keys, key_dim, value_dim;
    const float *q, *k, *v;
    long q_batch, q_head, q_step, k_batch, k_head, k_step, v_batch, v_head, v_step;
    const uint8_t *mask; /* 1 = may be seen, or NULL; shared by all heads */
    long mask_batch, mask_query, mask_key, causal;
    float scale, *weights; /* [batch][heads][queries][keys] */
    float *context;        /* [batch][queries][heads][value_dim] */
    const float *gradient; /* of the context, in its layout */
    float *dq, *dk, *dv;   /* [batch][queries or keys][heads][key_dim or value_dim] */
} Short;

#define GROUP 4 /* rows that are multiplied together, with 32 columns */

/* c = a · b · scale for a [rows, inner], which may be transposed, and b [inner, columns]. */
ALONE multiply_small(const float *a, long a_row, long a_column, const float *b, long b_row, float *c, long c_row, long rows,
                     long inner, long columns, float scale) {
    for (long column = 0; column < columns; column += 2 * WIDTH) {
        __mmask16 first = lanes(columns - column), second = lanes(columns - column - WIDTH);
        for (long row = 0; row < rows; row += GROUP) {
            __m512 sum[GROUP][2];
            const float *from[GROUP];
            ALL for (int r = 0; r < GROUP; r++) {
                sum[r][0] = sum[r][1] = _mm512_setzero_ps();
                from[r] = a + (row + r < rows ? row + r : rows - 1) * a_row;
            }
            for (long i = 0; i < inner; i++) {
                __m512 left = _mm512_maskz_loadu_ps(first, b + i * b_row + column);
                __m512 right = _mm512_maskz_loadu_ps(second, b + i * b_row + column + WIDTH);
                ALL for (int r = 0; r < GROUP; r++) {
                    __m512 each = _mm512_set1_ps(from[r][i * a_column]);
                    sum[r][0] = _mm512_fmadd_ps(each, left, sum[r][0]);
                    sum[r][1] = _mm512_fmadd_ps(each, right, sum[r][1]);
                }
            }
            __m512 scales = _mm512_set1_ps(scale);
            for (int r = 0; r < GROUP && row + r < rows; r++) {
                float *to = c + (row + r) * c_row + column;
                _mm512_mask_storeu_ps(to, first, _mm512_mul_ps(sum[r][0], scales));
                _mm512_mask_storeu_ps(to + WIDTH, second, _mm512_mul_ps(sum[r][1], scales));
            }
        }
    }
}

INLINE void transpose(const float *from, long step, long rows, long columns, float *to) {
    for (long r = 0; r < rows; r++)
        for (long c = 0; c < columns; c++) to[c * rows + r] = from[r * step + c];
}

/* Softmax of the scores of one query, in place; all weights are 0 where everything is masked. */
INLINE void weigh(float *scores, long keys, const uint8_t *mask, long mask_key, long seen) {
    __m512 highest = _mm512_set1_ps(-INFINITY), total = _mm512_setzero_ps();
    for (long k = 0; k < keys; k++)
        if (k >= seen || (mask && !mask[k * mask_key])) scores[k] = -INFINITY;
    for (long k = 0; k < keys; k += WIDTH)
        highest = _mm512_max_ps(highest, _mm512_mask_loadu_ps(highest, lanes(keys - k), scores + k));
    float top = _mm512_reduce_max_ps(highest);
    __m512 base = _mm512_set1_ps(top == -INFINITY ? 0 : top);
    for (long k = 0; k < keys; k += WIDTH) {
        __m512 x = _mm512_mask_loadu_ps(_mm512_set1_ps(-INFINITY), lanes(keys - k), scores + k);
        x = exponential(_mm512_sub_ps(x, base));
        total = _mm512_add_ps(total, _mm512_maskz_mov_ps(lanes(keys - k), x));
        _mm512_mask_storeu_ps(scores + k, lanes(keys - k), x);
    }
    float sum = _mm512_reduce_add_ps(total);
    __m512 share = _mm512_set1_ps(top == -INFINITY ? 0 : 1 / sum);
    for (long k = 0; k < keys; k += WIDTH)
        _mm512_mask_storeu_ps(scores + k, lanes(keys - k), _mm512_mul_ps(_mm512_maskz_loadu_ps(lanes(keys - k), scores + k), share));
}

void attention(const Short *s, int threads) {
#pragma omp parallel num_threads(threads) if (threads > 1)
    {
        float *transposed = malloc((s->key_dim * s->keys + WIDTH) * sizeof *transposed);
#pragma omp for
        for (long n = 0; n < s->batch * s->heads; n++) {
            long b = n / s->heads, h = n % s->heads, across = s->heads * s->value_dim;
            const float *q = s->q + b * s->q_batch + h * s->q_head, *k = s->k + b * s->k_batch + h * s->k_head;
            const float *v = s->v + b * s->v_batch + h * s->v_head;
            float *weights = s->weights + n * s->queries * s->keys;
            transpose(k, s->k_step, s->keys, s->key_dim, transposed);
            multiply_small(q, s->q_step, 1, transposed, s->keys, weights, s->keys, s->queries, s->key_dim, s->keys,
                           s->scale);
            for (long i = 0; i < s->queries; i++)
                weigh(weights + i * s->keys, s->keys,
                      s->mask ? s->mask + b * s->mask_batch + i * s->mask_query : NULL, s->mask_key,
                      s->causal ? i + 1 : s->keys);
            float *context = s->context + (b * s->queries * s->heads + h) * s->value_dim;
            multiply_small(weights, s->keys, 1, v, s->v_step, context, across, s->queries, s->keys, s->value_dim, 1);
        }
        free(transposed);
    }
}

/* With P the weights and G the gradient:
   dV = Pᵀ G, dP = G Vᵀ, dS = P (dP - the mean of dP weighted by P), dQ = dS K, dK = dSᵀ Q. */
void attention_backward(const Short *s, int threads) {
#pragma omp parallel num_threads(threads) if (threads > 1)
    {
        float *transposed = malloc((s->value_dim * s->keys + WIDTH) * sizeof *transposed);
        float *slopes = malloc((s->queries * s->keys + WIDTH) * sizeof *slopes);
#pragma omp for
        for (long n = 0; n < s->batch * s->heads; n++) {
            long b = n / s->heads, h = n % s->heads, across = s->heads * s->value_dim, along = s->heads * s->key_dim;
            long at_query = b * s->queries * s->heads + h, at_key = b * s->keys * s->heads + h;
            const float *q = s->q + b * s->q_batch + h * s->q_head, *k = s->k + b * s->k_batch + h * s->k_head;
            const float *weights = s->weights + n * s->queries * s->keys, *g = s->gradient + at_query * s->value_dim;
            transpose(s->v + b * s->v_batch + h * s->v_head, s->v_step, s->keys, s->value_dim, transposed);
            multiply_small(g, across, 1, transposed, s->keys, slopes, s->keys, s->queries, s->value_dim, s->keys, 1);
            for (long i = 0; i < s->queries; i++) {
                const float *p = weights + i * s->keys;
                float *d = slopes + i * s->keys, mean = 0;
                for (long j = 0; j < s->keys; j++) mean += p[j] * d[j];
                for (long j = 0; j < s->keys; j++) d[j] = p[j] * (d[j] - mean) * s->scale;
            }
            float *dq = s->dq + at_query * s->key_dim, *dk = s->dk + at_key * s->key_dim, *dv = s->dv + at_key * s->value_dim;
            multiply_small(weights, 1, s->keys, g, across, dv, across, s->keys, s->queries, s->value_dim, 1);
            multiply_small(slopes, s->keys, 1, k, s->k_step, dq, along, s->queries, s->keys, s->key_dim, 1);
            multiply_small(slopes, 1, s->keys, q, s->q_step, dk, along, s->keys, s->queries, s->key_dim, 1);
        }
        free(transposed);
        free(slopes);
    }
}
