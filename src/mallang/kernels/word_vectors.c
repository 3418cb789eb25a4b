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

/* ---- GloVe: weighted least squares with AdaGrad -------------------------------------------------------------------- */

typedef struct {
    float *tables[2], *squares[2]; /* words × dim: vectors, and their sums of squared gradients */
    const int32_t *rows[2];        /* of each entry, one row of each table */
    const float *logs, *weights;   /* of each entry: the logarithm of its count, and the weight of its error */
    long entries, dim, block;
    long fixed[2];                 /* the column of each table that stays 1 */
    float rate;
    int32_t *heads[2];             /* words: -1 */
    int32_t *scratch;              /* 6 × block */
    float *slopes, *gradients;     /* block, 2 × block × dim */
    double *losses;                /* one per entry */
} Glove;

/* The entries of a block that share a row, as a list in the order of the entries. */
typedef struct {
    int32_t *first, *next, *last; /* per row of the block, per entry, per row of the block */
    long count;
} Lists;

/* Chain the entries of each row; `heads` says which list a row has. */
static void chain(const int32_t *rows, long entries, int32_t *heads, Lists *lists) {
    lists->count = 0;
    for (long e = 0; e < entries; e++) {
        int32_t list = heads[rows[e]];
        lists->next[e] = -1;
        if (list < 0) {
            list = heads[rows[e]] = lists->count++;
            lists->first[list] = e;
        } else
            lists->next[lists->last[list]] = e;
        lists->last[list] = e;
    }
}

/* One AdaGrad step of a row: each step is divided by the root of the squares before it. */
INLINE void descend(float *row, float *squares, float *gradient, long fixed, long dim) {
    gradient[fixed] = 0;
    for (long at = 0; at < dim; at += WIDTH) {
        __mmask16 here = lanes(dim - at);
        __m512 g = _mm512_maskz_loadu_ps(here, gradient + at), s = _mm512_maskz_loadu_ps(here, squares + at);
        __m512 step = _mm512_div_ps(g, _mm512_sqrt_ps(_mm512_mask_mov_ps(_mm512_set1_ps(1.0f), here, s)));
        _mm512_mask_storeu_ps(row + at, here, _mm512_sub_ps(_mm512_maskz_loadu_ps(here, row + at), step));
        _mm512_mask_storeu_ps(squares + at, here, _mm512_fmadd_ps(g, g, s));
    }
}

void glove_updates(const Glove *s, int threads) {
    long dim = s->dim, block = s->block;
    int32_t *part[6];
    for (int k = 0; k < 6; k++) part[k] = s->scratch + k * block;
    Lists lists[2] = {{part[0], part[1], part[2], 0}, {part[3], part[4], part[5], 0}};
#pragma omp parallel num_threads(threads)
    for (long first = 0; first < s->entries; first += block) {
        long count = first + block < s->entries ? block : s->entries - first;
        const int32_t *rows[2] = {s->rows[0] + first, s->rows[1] + first};
#pragma omp for schedule(static) nowait
        for (int side = 0; side < 2; side++) chain(rows[side], count, s->heads[side], &lists[side]);
#pragma omp for schedule(static)
        for (long e = 0; e < count; e++) {
            float error = dot(s->tables[0] + rows[0][e] * dim, s->tables[1] + rows[1][e] * dim, dim) - s->logs[first + e];
            s->slopes[e] = s->rate * s->weights[first + e] * error;
            s->losses[first + e] = 0.5 * s->weights[first + e] * error * error;
        }
#pragma omp for schedule(static)
        for (long k = 0; k < lists[0].count + lists[1].count; k++) {
            int side = k >= lists[0].count;
            float *sum = s->gradients + k * dim;
            for (long at = 0; at < dim; at++) sum[at] = 0;
            for (int32_t e = lists[side].first[k - side * lists[0].count]; e >= 0; e = lists[side].next[e])
                for (long at = 0; at < dim; at++) sum[at] += s->slopes[e] * s->tables[!side][rows[!side][e] * dim + at];
        }
#pragma omp for schedule(static)
        for (long k = 0; k < lists[0].count + lists[1].count; k++) {
            int side = k >= lists[0].count;
            int32_t row = rows[side][lists[side].first[k - side * lists[0].count]];
            descend(s->tables[side] + row * dim, s->squares[side] + row * dim, s->gradients + k * dim, s->fixed[side], dim);
            s->heads[side][row] = -1;
        }
    }
}
