"use strict";
// The n-gram model: a table of log-probabilities and back-off weights, and their lookup.

/** The index of the first of some sorted numbers that is not below a value, between two indices. */
function lowerBound(numbers, value, first, last) {
  while (first < last) {
    const middle = (first + last) >> 1;
    if (numbers[middle] < value) first = middle + 1;
    else last = middle;
  }
  return first;
}

class NGram {
  constructor({ config, special }, tensors) {
    const data = name => tensors["table." + name].data, [words] = config.sizes;
    const histories = data("histories"), last = data("last"); // float32 holds integers up to 2^24
    // A number for each n-gram from order 2 up, sorted within an order: its history, and its last word.
    const keys = Float64Array.from(histories, (history, i) => history * words + last[i]);
    Object.assign(this, { config, special, keys, logProbs: data("log_probs"), backoffs: data("backoffs") });
    // Where the n-grams of each order begin; after the last one of an order is one that stands for all others.
    this.begins = config.sizes.map((_, order) => config.sizes.slice(0, order).reduce((sum, size) => sum + size + 1, 0));
  }

  /** The place within its order of a history followed by a word; the last if it is not in the table. */
  find(order, history, word) {
    const [words] = this.config.sizes, size = this.config.sizes[order - 1], first = this.begins[order - 1] - words - 1;
    const wanted = history * words + word, at = lowerBound(this.keys, wanted, first, first + size);
    return at < first + size && this.keys[at] === wanted ? at - first : size;
  }

  /** Back-off from words alone to the longest history: its weight for all words, then what it has itself. */
  scores(seen) {
    const { sizes: [words, ...others] } = this.config, scores = this.logProbs.slice(0, words);
    others.forEach((size, below) => {
      const length = below + 1, begin = this.begins[length] - words - 1;
      if (seen.length < length) return;
      const past = seen.slice(-length), history = past.slice(1).reduce((found, word, place) => this.find(place + 2, found, word), past[0]);
      const weight = this.backoffs[this.begins[below] + history];
      for (let word = 0; word < words; word++) scores[word] += weight;
      for (let at = lowerBound(this.keys, history * words, begin, begin + size); at < begin + size && this.keys[at] < (history + 1) * words; at++) {
        scores[this.keys[at] - history * words] = this.logProbs[at + words + 1];
      }
    });
    return scores;
  }

  start() {
    return { seen: [], maps: [] };
  }

  step(ids, state) {
    state.seen.push(...ids.filter(id => this.config.begin || id !== this.special.bos));
    const least = -99 * Math.LN10; // stands for log 0
    return { logits: this.scores(state.seen.slice(1 - this.config.sizes.length)).map(score => Math.max(score, least)), maps: [] };
  }
}

Object.assign(MODELS, { ngram: NGram });
