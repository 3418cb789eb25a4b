/* Bags of n-grams, and linear classifiers trained on them; for any processor. ngram_rows.py and coordinate_descent.py
   call these functions and hold the plain version of each.

   A matrix of features is in CSR form: the entries of row i are indices[indptr[i]] … indices[indptr[i + 1] - 1]. */

#include <math.h>
#include <stdint.h>

#define ODD 0x9E3779B97F4A7C15u /* 2^64 divided by the golden ratio: its multiples spread evenly */
#define BLOCK 64                /* positions whose slots are fetched together, so that their cache misses overlap */
#define LONGEST 16              /* the maximum length of an n-gram */

/* One entry of a hash table with linear probing; `feature` is -1 in an empty slot. `last` is the entry of the matrix
   that counted this n-gram last: if it belongs to the current row, its count is raised, otherwise the row has a new
   entry. So a row is counted in one pass, without sorting. */
typedef struct {
    int64_t key;
    int32_t feature, last;
} Slot;

static inline uint64_t slot_of(int64_t key, int bits) { return (uint64_t)key * ODD >> (64 - bits); }

/* The slot that holds this key, or the empty one where it would go. */
static inline Slot *find(Slot *slots, int bits, int64_t key) {
    uint64_t place = slot_of(key, bits), end = ((uint64_t)1 << bits) - 1;
    while (slots[place].feature >= 0 && slots[place].key != key) place = (place + 1) & end;
    return slots + place;
}

/* Put keys into an empty table; the number of a key is its feature. */
void index_keys(const int64_t *keys, long count, Slot *slots, long bits) {
    for (long i = 0; i < count; i++) {
        Slot *slot = find(slots, bits, keys[i]);
        slot->key = keys[i];
        slot->feature = i;
    }
}

/* The n-grams of a row whose first token is one of `width` positions from `start` on: exact keys, in mixed radix, or
   hashes. `orders` has bit n set for n-grams of length n. Returns their number. */
static inline long keys_of(const int32_t *ids, long start, long width, long end, int64_t radix, uint32_t orders,
                           int64_t *keys) {
    int longest = 31 - __builtin_clz(orders);
    long found = 0;
    for (long first = start; first < start + width; first++) {
        uint64_t key = 0;
        for (long n = 1; n <= longest && first + n <= end; n++) {
            uint64_t token = (uint64_t)ids[first + n - 1] + 1;
            if (radix)
                key = key * radix + token;
            else {
                key = (key + token) * ODD;
                key ^= key >> 32;
            }
            if (orders >> n & 1) keys[found++] = key;
        }
    }
    return found;
}

/* Rows of features from texts: the tokens of text i are ids[offsets[i]] … ids[offsets[i + 1] - 1].

   state: the next row; the number of entries so far; the number of features; entries counted by earlier calls, which
   the marks of the table are still set to. New n-grams get the next feature number and are written to `known`, until
   `most` could be exceeded: then the function returns before the row that it stopped at. With `most` = 0 none is new,
   and unknown ones are left out. */
void count_ngrams(const int32_t *ids, const int64_t *offsets, long rows, int64_t radix, long orders, Slot *slots,
                  long bits, int64_t *known, long most, int64_t *state, int64_t *indptr, int32_t *indices,
                  int32_t *counts) {
    int64_t keys[BLOCK * LONGEST], base = state[3];
    long entries = state[1], features = state[2], row = state[0];
    for (; row < rows; row++) {
        long begin = offsets[row], end = offsets[row + 1], first = entries;
        if (most && features + (end - begin) * __builtin_popcountl(orders) > most) break;
        for (long start = begin; start < end; start += BLOCK) {
            long width = end - start < BLOCK ? end - start : BLOCK;
            long found = keys_of(ids, start, width, end, radix, orders, keys);
            for (long k = 0; k < found; k++) __builtin_prefetch(slots + slot_of(keys[k], bits), 1);
            for (long k = 0; k < found; k++) {
                Slot *slot = find(slots, bits, keys[k]);
                if (slot->feature < 0) {
                    if (!most) continue;
                    known[features] = slot->key = keys[k];
                    slot->feature = features++;
                    slot->last = -1;
                }
                if (slot->last >= base + first)
                    counts[slot->last - base]++;
                else {
                    slot->last = base + entries;
                    indices[entries] = slot->feature;
                    counts[entries++] = 1;
                }
            }
        }
        indptr[row + 1] = entries;
    }
    state[0] = row, state[1] = entries, state[2] = features;
}

/* The same with hashed n-grams: the feature of an n-gram is the upper bits of its hash. */
void count_buckets(const int32_t *ids, const int64_t *offsets, long rows, long orders, int32_t *last, long bits,
                   int64_t *state, int64_t *indptr, int32_t *indices, int32_t *counts) {
    int64_t keys[BLOCK * LONGEST], base = state[3];
    long entries = 0;
    for (long row = 0; row < rows; row++) {
        long begin = offsets[row], end = offsets[row + 1], first = entries;
        for (long start = begin; start < end; start += BLOCK) {
            long width = end - start < BLOCK ? end - start : BLOCK;
            long found = keys_of(ids, start, width, end, 0, orders, keys);
            for (long k = 0; k < found; k++) __builtin_prefetch(last + slot_of(keys[k], bits), 1);
            for (long k = 0; k < found; k++) {
                int32_t feature = slot_of(keys[k], bits);
                if (last[feature] >= base + first)
                    counts[last[feature] - base]++;
                else {
                    last[feature] = base + entries;
                    indices[entries] = feature;
                    counts[entries++] = 1;
                }
            }
        }
        indptr[row + 1] = entries;
    }
    state[1] = entries;
}

/* Give features new numbers and drop the entries of those whose number is -1; the matrix is changed in place. */
void renumber(const int32_t *numbers, long rows, int64_t *indptr, int32_t *indices, int32_t *counts) {
    int64_t kept = 0, begin = 0;
    for (long row = 0; row < rows; row++) {
        int64_t end = indptr[row + 1];
        for (int64_t k = begin; k < end; k++) {
            int32_t feature = numbers[indices[k]];
            indices[kept] = feature;
            counts[kept] = counts[k];
            kept += feature >= 0;
        }
        begin = end;
        indptr[row + 1] = kept;
    }
}

/* ---- linear classifiers ------------------------------------------------------------------------------------------ */

/* The scores of rows: matrix · weights + bias, one per class. */
void linear_scores(const int64_t *indptr, const int32_t *indices, const float *values, long rows, const float *weights,
                   const float *bias, long classes, float *scores) {
    for (long row = 0; row < rows; row++) {
        float *score = scores + row * classes;
        for (long c = 0; c < classes; c++) {
            double sum = bias[c];
            for (int64_t k = indptr[row]; k < indptr[row + 1]; k++)
                sum += (double)values[k] * weights[(int64_t)indices[k] * classes + c];
            score[c] = sum;
        }
    }
}

/* The margin m of an example whose own coordinate of the logistic dual is optimal: m = b + a (C / (1 + e^m) - alpha),
   by Newton's method between the bounds that 0 and C give. */
static inline double logistic_margin(double a, double b, double C, double alpha) {
    double low = b - a * alpha, high = b + a * (C - alpha), m = b < low ? low : b > high ? high : b;
    for (int i = 0; i < 50; i++) {
        double share = 1 / (1 + exp(m)), error = m - b - a * (C * share - alpha);
        if (error > 0) high = m;
        else low = m;
        double next = m - error / (1 + a * C * share * (1 - share));
        if (!(next > low && next < high)) next = (low + high) / 2;
        if (fabs(next - m) <= 1e-12 * (1 + fabs(m))) return next;
        m = next;
    }
    return m;
}

/* One pass of dual coordinate descent over the rows in `order`, for all classes at once.

   Every class is a problem of its own: ½‖w‖² + Σ C loss(y (w·x + bias)), with the bias as the weight of a constant
   feature. signs: 1 or -1 for each row and class. costs: C of each class, for sign -1 and for sign 1. loss: 0 squared
   hinge, 1 logistic. alpha: the dual variables. weights and bias follow them.

   scales: NULL, or a factor s for each feature and class: then a weight is regularized by ½w²/s, as if every feature
   were multiplied by √s and its weight divided by it. squares: Σ s x² + 1 of each row and class.

   A row stays active unless all its dual variables are 0 and all its margins lie more than `bar` above 1. `change` is
   the largest change of a margin by its own update. */
void descend(const int64_t *order, long visited, const int64_t *indptr, const int32_t *indices, const float *values,
             const float *scales, const double *squares, const int8_t *signs, const double *costs, long classes,
             long loss, double bar, double *alpha, double *weights, double *bias, double *scratch, uint8_t *active, double *change) {
    double most = 0;
    for (long v = 0; v < visited; v++) {
        int64_t row = order[v], begin = indptr[row], end = indptr[row + 1];
        double *scores = scratch, *steps = scratch + classes;
        for (long c = 0; c < classes; c++) scores[c] = bias[c];
        if (classes == 1) {
            double sums[4] = {0, 0, 0, 0}; /* so that additions do not wait for each other */
            int64_t k = begin;
            for (; k + 4 <= end; k += 4)
                for (int j = 0; j < 4; j++) sums[j] += values[k + j] * weights[indices[k + j]];
            for (; k < end; k++) sums[0] += values[k] * weights[indices[k]];
            scores[0] += (sums[0] + sums[1]) + (sums[2] + sums[3]);
        } else
            for (int64_t k = begin; k < end; k++) {
                const double *weight = weights + (int64_t)indices[k] * classes, value = values[k];
                for (long c = 0; c < classes; c++) scores[c] += value * weight[c];
            }
        int is_active = 0, is_moved = 0;
        for (long c = 0; c < classes; c++) {
            double sign = signs[row * classes + c], C = costs[2 * c + (sign > 0)], *own = alpha + row * classes + c;
            double margin = sign * scores[c], before = *own, square = squares[row * classes + c];
            if (loss) {
                *own = C / (1 + exp(logistic_margin(square, margin, C, before)));
                is_active = 1;
            } else {
                double slope = margin - 1 + before / (2 * C);
                *own = fmax(0, before - slope / (square + 1 / (2 * C)));
                is_active |= *own > 0 || slope <= bar;
            }
            double step = *own - before;
            most = fmax(most, fabs(step) * square);
            is_moved |= step != 0;
            steps[c] = step * sign;
        }
        active[row] = is_active;
        if (!is_moved) continue;
        for (long c = 0; c < classes; c++) bias[c] += steps[c];
        if (scales)
            for (int64_t k = begin; k < end; k++) {
                int64_t place = (int64_t)indices[k] * classes;
                double value = values[k];
                for (long c = 0; c < classes; c++) weights[place + c] += scales[place + c] * value * steps[c];
            }
        else if (classes == 1)
            for (int64_t k = begin; k < end; k++) weights[indices[k]] += steps[0] * values[k];
        else
            for (int64_t k = begin; k < end; k++) {
                double *weight = weights + (int64_t)indices[k] * classes, value = values[k];
                for (long c = 0; c < classes; c++) weight[c] += value * steps[c];
            }
    }
    *change = most;
}
