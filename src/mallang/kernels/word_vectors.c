/* Training steps of word vectors, for a CPU with AVX-512; c_library.py compiles them, word_vectors.py calls them.

   The text is cut into blocks. All gradients of a block are computed from the vectors as they were before it; then they
   are added. Threads share first the groups of a block, then the rows of the tables. A row takes its updates in the
   order of the text, whoever adds them, so the result does not depend on the number of threads.

   A block takes a fraction of a millisecond. On a busy machine a thread may have to wait much longer for its core, so
   nobody waits for a thread, but for work that was taken: who is there does what is left. */

#include "avx512.h"
#include <math.h>
#include <omp.h>
#include <sched.h>
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

/* ---- sharing work ------------------------------------------------------------------------------------------------ */

#define PIECE 16     /* groups or rows that a thread takes at once */
#define PATIENCE 500 /* times that a thread looks for the end of a phase before it leaves its core to others */

/* Work in numbered pieces, which threads take until none is left. */
typedef struct {
    long taken, done;
} Phase;

/* Take a piece; whether there was one. */
INLINE int take(Phase *phase, long pieces, long *piece) {
    *piece = __atomic_load_n(&phase->taken, __ATOMIC_RELAXED);
    if (*piece >= pieces) return 0;
    *piece = __atomic_fetch_add(&phase->taken, 1, __ATOMIC_ACQ_REL);
    return *piece < pieces;
}

INLINE void finish(Phase *phase) { __atomic_fetch_add(&phase->done, 1, __ATOMIC_ACQ_REL); }

/* Wait until every piece is done. */
INLINE void await(Phase *phase, long pieces) {
    for (long looks = 0; __atomic_load_n(&phase->done, __ATOMIC_ACQUIRE) < pieces; looks++)
        looks < PATIENCE ? _mm_pause() : (void)sched_yield();
}

INLINE long pieces_of(long count) { return (count + PIECE - 1) / PIECE; }
INLINE long least(long one, long other) { return one < other ? one : other; }

/* Do `work` for all numbers below `count`, shared among threads by a phase. */
#define SHARE(phase, count, work)                                                                                      \
    do {                                                                                                               \
        long piece, total = count;                                                                                     \
        while (take(phase, pieces_of(total), &piece)) {                                                                \
            for (long k = piece * PIECE; k < least((piece + 1) * PIECE, total); k++) work;                             \
            finish(phase);                                                                                             \
        }                                                                                                              \
        await(phase, pieces_of(total));                                                                                \
    } while (0)

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

/* Add the updates of a block to the rows of one part. */
static void add_block(const Logistic *s, long first, long end, int part, int parts) {
    long in = s->input_width, out = s->output_width, dim = s->dim;
    for (long group = first; group < end; group++) {
        const float *dx = s->input_updates + (group - first) * (s->pooling ? 1 : in) * dim;
        add_rows(s->inputs, s->input_rows + group * in, in, dx, s->pooling ? 0 : dim, dim, part, parts);
        const float *dy = s->output_updates + (group - first) * out * dim;
        add_rows(s->outputs, s->output_rows + group * out, out, dy, dim, dim, part, parts);
    }
}

void logistic_updates(const Logistic *s, int threads) {
    long in = s->input_width, out = s->output_width, blocks = (s->groups + s->block - 1) / s->block;
    Phase *phases = calloc(2 * blocks, sizeof *phases);
#pragma omp parallel num_threads(threads)
    {
        int parts = omp_get_num_threads();
        const float **rows = malloc((in + out) * sizeof *rows);
        float *values = malloc((2 * in * out + s->dim) * sizeof *values);
        Scratch scratch = {rows, rows + in, values, values + in * out, values + 2 * in * out};
        for (long block = 0; block < blocks; block++) {
            Phase *phase = phases + 2 * block;
            long first = block * s->block, end = least(first + s->block, s->groups), part;
            SHARE(phase, end - first, differentiate(s, first + k, &scratch));
            while (take(phase + 1, parts, &part)) {
                add_block(s, first, end, part, parts);
                finish(phase + 1);
            }
            await(phase + 1, parts);
        }
        free(values);
        free(rows);
    }
    free(phases);
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
} Lists;

/* Chain the entries of each row; `heads` says which list a row has. Returns the number of lists. */
static long chain(const int32_t *rows, long entries, int32_t *heads, const Lists *lists) {
    long count = 0;
    for (long e = 0; e < entries; e++) {
        int32_t list = heads[rows[e]];
        lists->next[e] = -1;
        if (list < 0) {
            list = heads[rows[e]] = count++;
            lists->first[list] = e;
        } else
            lists->next[lists->last[list]] = e;
        lists->last[list] = e;
    }
    return count;
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

/* A block of entries. */
typedef struct {
    const int32_t *rows[2]; /* of each entry, one row of each table */
    const Lists *lists;     /* of each table */
    long first, count;      /* its entries */
    long lists_of_rows;     /* lists of the first table; those of the second are numbered after them */
} Block;

/* The loss of one entry, and the slope of its gradients. */
INLINE void score_entry(const Glove *s, const Block *b, long e) {
    const float *row = s->tables[0] + b->rows[0][e] * s->dim, *column = s->tables[1] + b->rows[1][e] * s->dim;
    float error = dot(row, column, s->dim) - s->logs[b->first + e];
    s->slopes[e] = s->rate * s->weights[b->first + e] * error;
    s->losses[b->first + e] = 0.5 * s->weights[b->first + e] * error * error;
}

/* The gradient of the row of one list: the sum over its entries. */
INLINE void sum_list(const Glove *s, const Block *b, long list) {
    int side = list >= b->lists_of_rows;
    float *sum = s->gradients + list * s->dim;
    for (long at = 0; at < s->dim; at++) sum[at] = 0;
    for (int32_t e = b->lists[side].first[list - side * b->lists_of_rows]; e >= 0; e = b->lists[side].next[e])
        for (long at = 0; at < s->dim; at++)
            sum[at] += s->slopes[e] * s->tables[!side][b->rows[!side][e] * s->dim + at];
}

/* The step of the row of one list, which has no list after it. */
INLINE void step_list(const Glove *s, const Block *b, long list) {
    int side = list >= b->lists_of_rows;
    long row = b->rows[side][b->lists[side].first[list - side * b->lists_of_rows]], at = row * s->dim;
    descend(s->tables[side] + at, s->squares[side] + at, s->gradients + list * s->dim, s->fixed[side], s->dim);
    s->heads[side][row] = -1;
}

void glove_updates(const Glove *s, int threads) {
    long block = s->block, blocks = (s->entries + block - 1) / block;
    int32_t *part[6];
    for (int k = 0; k < 6; k++) part[k] = s->scratch + k * block;
    const Lists lists[2] = {{part[0], part[1], part[2]}, {part[3], part[4], part[5]}};
    Phase *phases = calloc(4 * blocks, sizeof *phases);
    long *counts = calloc(2 * blocks, sizeof *counts); /* of the lists of each block: a thread may come late */
#pragma omp parallel num_threads(threads)
    for (long number = 0; number < blocks; number++) {
        Phase *phase = phases + 4 * number;
        long first = number * block, *count = counts + 2 * number, side;
        Block b = {{s->rows[0] + first, s->rows[1] + first}, lists, first, least(block, s->entries - first), 0};
        while (take(phase, 2, &side)) {
            count[side] = chain(b.rows[side], b.count, s->heads[side], &lists[side]);
            finish(phase);
        }
        SHARE(phase + 1, b.count, score_entry(s, &b, k));
        await(phase, 2);
        b.lists_of_rows = count[0];
        SHARE(phase + 2, count[0] + count[1], sum_list(s, &b, k));
        SHARE(phase + 3, count[0] + count[1], step_list(s, &b, k));
    }
    free(counts);
    free(phases);
}
