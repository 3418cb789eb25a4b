/* Training steps of word vectors, for a CPU with AVX-512; c_library.py compiles them, word_vectors.py calls them.

   The text is cut into blocks. All gradients of a block are computed from the vectors as they were before it; then they
   are added. Threads share first the groups of a block, then the rows of the tables. A row takes its updates in the
   order of the text, whoever adds them, so the result does not depend on the number of threads. */

#include "avx512.h"
#include <math.h>
#include <omp.h>
#include <stdint.h>
#include <stdlib.h>

#define TILE 8 /* registers of a row that are summed together */
#define LEAST 1e-17f /* smallest probability of a loss: the logarithm stays finite */

/* ---- vectors ----------------------------------------------------------------------------------------------------- */

INLINE float dot(const float *x, const float *y, long dim) {
    __m512 sum = _mm512_setzero_ps(), other = sum;
    long at = 0;
    for (; at + 2 * WIDTH <= dim; at += 2 * WIDTH) {
        sum = _mm512_fmadd_ps(_mm512_loadu_ps(x + at), _mm512_loadu_ps(y + at), sum);
        other = _mm512_fmadd_ps(_mm512_loadu_ps(x + at + WIDTH), _mm512_loadu_ps(y + at + WIDTH), other);
    }
    for (; at < dim; at += WIDTH) {
        __mmask16 here = lanes(dim - at);
        sum = _mm512_fmadd_ps(_mm512_maskz_loadu_ps(here, x + at), _mm512_maskz_loadu_ps(here, y + at), sum);
    }
    return _mm512_reduce_add_ps(_mm512_add_ps(sum, other));
}

/* target = the sum of weights[k · step] · rows[k] */
INLINE void combine(float *target, const float *const *rows, long count, const float *weights, long step, long dim) {
    for (long at = 0; at < dim; at += TILE * WIDTH) {
        __m512 sums[TILE];
        __mmask16 here[TILE];
        ALL for (int k = 0; k < TILE; k++) sums[k] = _mm512_setzero_ps(), here[k] = lanes(dim - at - k * WIDTH);
        for (long row = 0; row < count; row++) {
            __m512 weight = _mm512_set1_ps(weights[row * step]);
            ALL for (int k = 0; k < TILE; k++)
                sums[k] = _mm512_fmadd_ps(weight, _mm512_maskz_loadu_ps(here[k], rows[row] + at + k * WIDTH), sums[k]);
        }
        ALL for (int k = 0; k < TILE; k++) _mm512_mask_storeu_ps(target + at + k * WIDTH, here[k], sums[k]);
    }
}

INLINE void add(float *target, const float *update, long dim) {
    for (long at = 0; at < dim; at += WIDTH) {
        __mmask16 here = lanes(dim - at);
        __m512 sum = _mm512_add_ps(_mm512_maskz_loadu_ps(here, target + at), _mm512_maskz_loadu_ps(here, update + at));
        _mm512_mask_storeu_ps(target + at, here, sum);
    }
}

/* ---- logistic losses: negative sampling, hierarchical softmax ------------------------------------------------------ */

typedef struct {
    float *inputs, *outputs;    /* two tables with rows of `dim` values */
    long dim;
    const int32_t *input_rows;  /* groups × input_width, -1: none */
    const int32_t *output_rows; /* groups × output_width, -1: none */
    const float *labels;        /* groups × output_width, 1 or 0 */
    const float *rates;         /* the learning rate of each block */
    long groups, input_width, output_width, block;
    long pooling;               /* 0: every input by itself; 1: their mean; 2: their mean, gradient not divided */
    float *input_updates;       /* block × input_width × dim; block × dim where inputs are pooled */
    float *output_updates;      /* block × output_width × dim */
    double *losses;             /* one per group */
} Logistic;

/* The memory of a thread: what it needs of one group. */
typedef struct {
    const float **x, **y; /* input and output rows */
    float *labels, *scores, *mean;
} Scratch;

/* Scores become the weights of updates, rate · (label − probability); returns the loss, −Σ log p(label). */
INLINE double weigh(float *scores, const float *labels, long count, float rate) {
    double loss = 0;
    __m512 one = _mm512_set1_ps(1.0f), zero = _mm512_setzero_ps();
    for (long at = 0; at < count; at += WIDTH) {
        __mmask16 here = lanes(count - at);
        __m512 score = _mm512_maskz_loadu_ps(here, scores + at);
        __mmask16 yes = _mm512_cmp_ps_mask(_mm512_maskz_loadu_ps(here, labels + at), zero, _CMP_GT_OQ);
        __m512 right = _mm512_div_ps(one, _mm512_add_ps(one, exponential(_mm512_mask_sub_ps(score, yes, zero, score))));
        __m512 slope = _mm512_mul_ps(_mm512_sub_ps(right, one), _mm512_set1_ps(rate));
        _mm512_mask_storeu_ps(scores + at, here, _mm512_mask_sub_ps(slope, yes, zero, slope));
        right = _mm512_mask_max_ps(one, here, _mm512_set1_ps(LEAST), right); /* this order keeps NaN */
        double likely = _mm512_reduce_mul_pd(_mm512_cvtps_pd(_mm512_castps512_ps256(right)));
        loss -= log(likely * _mm512_reduce_mul_pd(_mm512_cvtps_pd(_mm512_extractf32x8_ps(right, 1))));
    }
    return loss;
}

/* The rows of a group that are there; how many. */
INLINE long rows_of(const float *table, const int32_t *rows, long width, long dim, const float **found) {
    long count = 0;
    for (long k = 0; k < width; k++)
        if (rows[k] >= 0) found[count++] = table + rows[k] * dim;
    return count;
}

/* Compute the loss of a group and its updates, without adding them. */
static void differentiate(const Logistic *s, long group, Scratch *t) {
    const float *labels = s->labels + group * s->output_width;
    long slot = group % s->block, dim = s->dim;
    long inputs = rows_of(s->inputs, s->input_rows + group * s->input_width, s->input_width, dim, t->x);
    long outputs = rows_of(s->outputs, s->output_rows + group * s->output_width, s->output_width, dim, t->y);
    float share = 1.0f / inputs, rate = s->rates[group / s->block];
    if (s->pooling && inputs) {
        combine(t->mean, t->x, inputs, &share, 0, dim);
        t->x[0] = t->mean;
        inputs = 1;
    }
    for (long i = 0; i < inputs; i++)
        for (long o = 0, k = 0; k < outputs; o++)
            if (s->output_rows[group * s->output_width + o] >= 0) {
                t->labels[i * outputs + k] = labels[o];
                t->scores[i * outputs + k] = dot(t->x[i], t->y[k], dim);
                k++;
            }
    s->losses[group] = weigh(t->scores, t->labels, inputs * outputs, rate);
    float *dx = s->input_updates + slot * (s->pooling ? 1 : s->input_width) * dim;
    float *dy = s->output_updates + slot * s->output_width * dim;
    for (long o = 0; o < outputs; o++) combine(dy + o * dim, t->x, inputs, t->scores + o, outputs, dim);
    if (s->pooling == 1)
        for (long o = 0; o < outputs; o++) t->scores[o] *= share;
    for (long i = 0; i < inputs; i++) combine(dx + i * dim, t->y, outputs, t->scores + i * outputs, 1, dim);
}

/* Add the updates of one table's rows of a group, as far as they belong to this part of the rows. */
INLINE void add_rows(float *table, const int32_t *rows, long width, const float *updates, long step, long dim, int part,
                     int parts) {
    for (long k = 0; k < width; k++)
        if (rows[k] >= 0) {
            if (rows[k] % parts == part) add(table + rows[k] * dim, updates, dim);
            updates += step;
        }
}

void logistic_updates(const Logistic *s, int threads) {
    long in = s->input_width, out = s->output_width, dim = s->dim;
#pragma omp parallel num_threads(threads)
    {
        int part = omp_get_thread_num(), parts = omp_get_num_threads();
        const float **rows = malloc((in + out) * sizeof *rows);
        float *values = malloc((2 * in * out + dim) * sizeof *values);
        Scratch scratch = {rows, rows + in, values, values + in * out, values + 2 * in * out};
        for (long first = 0; first < s->groups; first += s->block) {
            long end = first + s->block < s->groups ? first + s->block : s->groups;
#pragma omp for schedule(static)
            for (long group = first; group < end; group++) differentiate(s, group, &scratch);
            for (long group = first; group < end; group++) {
                const float *dx = s->input_updates + (group - first) * (s->pooling ? 1 : in) * dim;
                add_rows(s->inputs, s->input_rows + group * in, in, dx, s->pooling ? 0 : dim, dim, part, parts);
                const float *dy = s->output_updates + (group - first) * out * dim;
                add_rows(s->outputs, s->output_rows + group * out, out, dy, dim, dim, part, parts);
            }
#pragma omp barrier
        }
        free(values);
        free(rows);
    }
}
