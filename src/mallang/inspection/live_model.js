"use strict";
// A model in plain JavaScript: tokenizer, layers, search; the other live_*.js files have the models. It knows no page,
// so that Node can run it. Arrays are row-major Float32Arrays; sums are added in double precision.

// ---------------------------------------------------------------------------------------------------------- weights

/** The bytes of a gzipped base64 text. */
async function unpacked(base64) {
  const bytes = Uint8Array.from(atob(base64), character => character.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

/** Tensors by name; a matrix is stored as int8 with one float32 scale per row, all else as float32. */
function readTensors(tensors, bytes) {
  const found = {};
  let place = 0;
  const floats = count => {
    const values = new Float32Array(bytes.slice(place, place + 4 * count).buffer);
    place += 4 * count;
    return values;
  };
  for (const { name, shape, int8 } of tensors) {
    const size = shape.reduce((product, axis) => product * axis, 1);
    if (!int8) {
      found[name] = { shape, data: floats(size) };
      continue;
    }
    const scales = floats(shape[0]), row = size / shape[0], data = new Float32Array(size);
    const integers = new Int8Array(bytes.buffer, bytes.byteOffset + place, size);
    for (let i = 0; i < size; i++) data[i] = integers[i] * scales[Math.floor(i / row)];
    place += Math.ceil(size / 4) * 4;
    found[name] = { shape, data };
  }
  return found;
}

// -------------------------------------------------------------------------------------------------------- tokenizer

const SPACED = ["word", "bpe"];
const LETTER = "\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}", BLANK = "\\p{White_Space}";
const SPLITS = {
  word: new RegExp(` ?[${LETTER}]+| ?[^${LETTER}${BLANK}]|${BLANK}`, "gu"),
  bpe: new RegExp(` ?[${LETTER}]+| ?[^${LETTER}${BLANK}<]+| ?<|${BLANK}`, "gu"),
  space: new RegExp(`[^${BLANK}]+`, "gu"),
  "byte-bpe": new RegExp(
    `'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^${BLANK}\\p{L}\\p{N}]+|${BLANK}+(?![^${BLANK}])|${BLANK}+`, "gu"),
};

/** The printable character that stands for each byte in byte-level BPE. */
function byteCharacters() {
  const isPrintable = byte => (byte > 32 && byte < 127) || (byte > 160 && byte !== 173);
  let others = 0;
  return Array.from({ length: 256 }, (_, byte) => String.fromCodePoint(isPrintable(byte) ? byte : 256 + others++));
}

class Tokenizer {
  constructor({ unit, normalization, lowercase, tokens, merges, special }) {
    Object.assign(this, { unit, normalization, lowercase, tokens, special });
    this.ids = new Map(tokens.map((token, id) => [token, id]));
    this.ranks = new Map(merges.map(([left, right], rank) => [`${left} ${right}`, rank]));
    this.merged = new Map(merges.map(([left, right, id]) => [`${left} ${right}`, id]));
    this.bytes = byteCharacters();
  }

  /** The ids of a text, without special tokens. */
  encode(text) {
    return this.split(this.normalized(text)).flatMap(piece => this.piece(piece));
  }

  normalized(text) {
    const form = this.unit === "jamo" ? this.normalization.replace("C", "D") : this.normalization;
    let changed = form === "none" ? text : text.normalize(form);
    if (this.lowercase) changed = changed.toLowerCase();
    return SPACED.includes(this.unit) && changed ? " " + changed : changed;
  }

  split(text) {
    if (this.unit === "syllable") return Array.from(new Intl.Segmenter().segment(text), part => part.segment);
    return SPLITS[this.unit] ? text.match(SPLITS[this.unit]) ?? [] : [text];
  }

  /** The ids of one piece: a whole word, or its characters merged in the order that training found. */
  piece(text) {
    if (["word", "space", "syllable"].includes(this.unit)) {
      const { pad, unk, bos, eos } = this.special, id = this.ids.get(text) ?? unk;
      return [[pad, bos, eos].includes(id) ? unk : id]; // what a text spells is a word, never a special token
    }
    const spelled = this.unit.startsWith("byte")
      ? Array.from(new TextEncoder().encode(text), byte => this.bytes[byte])
      : Array.from(text);
    const ids = spelled.map(character => this.ids.get(character) ?? this.special.unk);
    for (;;) {
      let best = -1, lowest = Infinity;
      for (let i = 0; i + 1 < ids.length; i++) {
        const rank = this.ranks.get(`${ids[i]} ${ids[i + 1]}`);
        if (rank < lowest) [best, lowest] = [i, rank];
      }
      if (best < 0) return ids;
      ids.splice(best, 2, this.merged.get(`${ids[best]} ${ids[best + 1]}`));
    }
  }

  /** The text of some ids; special tokens are left out, but in text of unit space <unk> is a word like others. */
  decode(ids) {
    const { pad, bos, eos, unk } = this.special, hidden = this.unit === "space" ? [pad, bos, eos] : [pad, bos, eos, unk];
    const parts = ids.filter(id => !hidden.includes(id)).map(id => this.tokens[id]);
    if (this.unit === "space") return parts.join(" ");
    const joined = parts.join("");
    if (this.unit === "jamo") return joined.normalize("NFC");
    if (SPACED.includes(this.unit)) return joined.replace(/^ /, "");
    if (!this.unit.startsWith("byte")) return joined;
    const byteOf = new Map(this.bytes.map((character, byte) => [character, byte]));
    return new TextDecoder().decode(Uint8Array.from(joined, character => byteOf.get(character)));
  }

  /** A token as it is shown: ▁ for a space. */
  shown(id) {
    return this.tokens[id].replace(/ /g, "▁");
  }
}

// ----------------------------------------------------------------------------------------------------------- layers

/** x Wᵀ + b for each row of x. */
function linear(x, rows, { weight, bias }) {
  const [outputs, inputs] = weight.shape, matrix = weight.data, y = new Float32Array(rows * outputs);
  for (let row = 0; row < rows; row++) {
    for (let output = 0; output < outputs; output++) {
      let even = 0, odd = 0, i = 0;
      for (let w = output * inputs, v = row * inputs; i + 1 < inputs; i += 2) {
        even += matrix[w + i] * x[v + i];
        odd += matrix[w + i + 1] * x[v + i + 1];
      }
      if (i < inputs) even += matrix[output * inputs + i] * x[row * inputs + i];
      y[row * outputs + output] = even + odd + (bias ? bias.data[output] : 0);
    }
  }
  return y;
}

/** (x − mean) / √(variance + ε) · γ + β for each row; no norm leaves x as it is. */
function layerNorm(x, rows, { weight, bias }, epsilon = 1e-5) {
  if (!weight) return x;
  const dim = weight.shape[0], y = new Float32Array(x.length);
  for (let row = 0; row < rows; row++) {
    const values = x.subarray(row * dim, (row + 1) * dim);
    let mean = 0, variance = 0;
    for (const value of values) mean += value / dim;
    for (const value of values) variance += (value - mean) ** 2 / dim;
    const scale = 1 / Math.sqrt(variance + epsilon);
    for (let i = 0; i < dim; i++) {
      y[row * dim + i] = (values[i] - mean) * scale * weight.data[i] + (bias ? bias.data[i] : 0);
    }
  }
  return y;
}

/** erf by Kummer's series, in which no terms cancel. */
function erf(x) {
  if (Math.abs(x) > 6) return Math.sign(x);
  let term = 1, sum = 1;
  for (let n = 1; term > sum * 1e-17; n++) sum += term *= (2 * x * x) / (2 * n + 1);
  return (2 * x * Math.exp(-x * x) * sum) / Math.sqrt(Math.PI);
}

const ACTIVATIONS = {
  relu: x => Math.max(x, 0),
  "relu-squared": x => Math.max(x, 0) ** 2,
  gelu: x => (x * (1 + erf(x / Math.SQRT2))) / 2,
  "gelu-tanh": x => (x * (1 + Math.tanh(Math.sqrt(2 / Math.PI) * (x + 0.044715 * x ** 3)))) / 2,
};

/** Softmax of `length` values of x from `start` on, in place. */
function softmax(x, start, length) {
  let most = -Infinity, sum = 0;
  for (let i = start; i < start + length; i++) most = Math.max(most, x[i]);
  for (let i = start; i < start + length; i++) sum += x[i] = Math.exp(x[i] - most);
  for (let i = start; i < start + length; i++) x[i] /= sum;
}

/** Several heads of softmax(QKᵀ/√d)V; `first` and `last` give the keys that a query may see. Keeps the weights. */
function attend(queries, keys, values, { heads, keyDim, valueDim }, first, last) {
  const rows = queries.length / (heads * keyDim), count = keys.length / (heads * keyDim);
  const weights = new Float32Array(heads * rows * count), context = new Float32Array(rows * heads * valueDim);
  for (let head = 0; head < heads; head++) {
    for (let row = 0; row < rows; row++) {
      const [from, to] = [first(row), last(row)], at = (head * rows + row) * count;
      for (let key = from; key <= to; key++) {
        let score = 0;
        const q = (row * heads + head) * keyDim, k = (key * heads + head) * keyDim;
        for (let i = 0; i < keyDim; i++) score += queries[q + i] * keys[k + i];
        weights[at + key] = score / Math.sqrt(keyDim);
      }
      softmax(weights, at + from, to - from + 1);
      for (let key = from; key <= to; key++) {
        const c = (row * heads + head) * valueDim, v = (key * heads + head) * valueDim;
        for (let i = 0; i < valueDim; i++) context[c + i] += weights[at + key] * values[v + i];
      }
    }
  }
  return { context, weights, heads, rows, count };
}

/** The parts of rows: columns from `start` on, `width` of them. */
function columns(x, rows, start, width) {
  const all = x.length / rows, part = new Float32Array(rows * width);
  for (let row = 0; row < rows; row++) part.set(x.subarray(row * all + start, row * all + start + width), row * width);
  return part;
}

/** x / √(mean of x² + ε) for each part of `dim` values: RMSNorm without a gain. */
function rmsNorm(x, dim, epsilon = 2 ** -23) {
  const y = new Float32Array(x.length);
  for (let start = 0; start < x.length; start += dim) {
    let square = 0;
    for (let i = start; i < start + dim; i++) square += x[i] ** 2 / dim;
    const scale = 1 / Math.sqrt(square + epsilon);
    for (let i = start; i < start + dim; i++) y[i] = x[i] * scale;
  }
  return y;
}

const added = (x, y) => x.map((value, i) => value + y[i]);

function joined(before, after) {
  const both = new Float32Array(before.length + after.length);
  both.set(before);
  both.set(after, before.length);
  return both;
}

// ----------------------------------------------------------------------------------------------------------- search

/** Log-probabilities; <pad> and <s> are never generated. */
function logProbabilities(logits, special) {
  let most = -Infinity, sum = 0;
  for (const logit of logits) most = Math.max(most, logit);
  for (const logit of logits) sum += Math.exp(logit - most);
  const found = logits.map(logit => logit - most - Math.log(sum));
  found[special.pad] = found[special.bos] = -Infinity;
  return found;
}

/** Candidates, the most probable first, after temperature, top-k and top-p; each with its share of what is left. */
function candidates(logProbs, { temperature = 1, topK = 0, topP = 1 } = {}) {
  const order = Array.from(logProbs, (_, id) => id).filter(id => logProbs[id] > -Infinity);
  order.sort((one, other) => logProbs[other] - logProbs[one] || one - other);
  const scaled = order.map(id => Math.exp((logProbs[id] - logProbs[order[0]]) / temperature));
  const total = scaled.reduce((sum, value) => sum + value, 0);
  let kept = 0, mass = 0;
  while (kept < order.length && (!topK || kept < topK) && mass < topP) mass += scaled[kept++] / total;
  return order.map((id, rank) => ({ id, share: rank < kept ? scaled[rank] / total / mass : 0, probability: Math.exp(logProbs[id]) }));
}

/** Random numbers between 0 and 1 from a seed (mulberry32). */
function randomNumbers(seed) {
  return () => {
    seed = (seed + 0x6d2b79f5) | 0;
    let mixed = Math.imul(seed ^ (seed >>> 15), 1 | seed);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 4294967296;
  };
}

function drawn(found, random) {
  let left = random();
  return (found.find(({ share }) => (left -= share) < 0) ?? found[0]).id;
}

/** The models by the names that headers give them; the files of models fill it. */
const MODELS = {};

/** The page's model with its tokenizers: `run` gives the output of a text with all that led to it. */
class Live {
  constructor(header, tensors) {
    this.header = header;
    this.model = new MODELS[header.config.kind](header, tensors);
    this.target = new Tokenizer(header.tokenizers.target);
    this.source = header.tokenizers.source ? new Tokenizer(header.tokenizers.source) : null;
  }

  /** Greedy search, or sampling with `sampling` options and a seed; `forced` ids replace what would be chosen first. */
  run(text, { forced = [], sampling = null, seed = 1 } = {}) {
    const { special, limit } = this.header, read = (this.source ?? this.target).encode(text);
    const source = this.source ? [...read, special.eos] : null, begin = this.source ? [special.bos] : [special.bos, ...read];
    const longest = this.source
      ? Math.min(limit.output, Math.floor(limit.ratio * source.length) + 10)
      : Math.min(limit.output, (limit.positions ?? Infinity) - begin.length + 1);
    const tooLong = limit.positions !== null && Math.max(source?.length ?? 0, begin.length) > limit.positions;
    if (tooLong) return { tooLong: true, tokens: Math.max(source?.length ?? 0, begin.length), limit: limit.positions };
    const state = this.model.start(source), steps = [], rows = [], random = randomNumbers(seed), spelled = this.spelled(text, begin);
    let next = spelled;
    while (steps.length < longest) {
      const { logits, maps } = this.model.step(next, state);
      rows.push(maps);
      const logProbs = logProbabilities(logits, special), isForced = steps.length < forced.length;
      const found = sampling && !isForced ? candidates(logProbs, sampling) : null;
      const id = isForced ? forced[steps.length] : found ? drawn(found, random) : highest(logProbs);
      steps.push({ id, logProb: logProbs[id], logProbs, isForced });
      if (id === special.eos) break;
      next = [id];
    }
    const ids = steps.map(step => step.id), said = ids.filter(id => id !== special.eos);
    return {
      text, source, begin, steps, ids,
      unknown: (source ?? spelled).includes(special.unk),
      output: this.source ? this.target.decode(said) : this.continued(text, read, said),
      isCut: ids.at(-1) !== special.eos,
      score: steps.reduce((sum, step) => sum + step.logProb, 0),
      maps: this.maps(state.maps, rows, source, [...begin, ...ids]),
    };
  }

  /** The ids of a prompt, where the model has some for words outside its vocabulary. */
  spelled(text, begin) {
    const { unit, special, tokens } = this.target;
    if (!this.model.idOf || !["word", "space"].includes(unit)) return begin;
    const pieces = this.target.split(this.target.normalized(text)).map(piece => piece.replace(/ /g, "▁"));
    const specials = Object.values(special).map(id => tokens[id]); // spelled in a text, they stay unknown
    const isWord = place => begin[place] === special.unk && !specials.includes(pieces[place - 1]);
    return begin.map((id, place) => (isWord(place) ? this.model.idOf(pieces[place - 1]) : id));
  }

  /** A prompt as it was given and what follows it, which may change its last letters. */
  continued(text, read, said) {
    const before = this.target.decode(read), whole = this.target.decode([...read, ...said]);
    return whole.startsWith(before) ? text + whole.slice(before.length) : whole;
  }

  /** The attention maps of all layers: for each head a table of queries and keys. */
  maps(encoder, rows, source, read) {
    const from = source?.map(id => this.source.shown(id)), all = read.map(id => this.target.shown(id));
    const found = encoder.map(map => ({ ...map, queries: from, keys: from }));
    for (const { name } of rows[0] ?? []) {
      const parts = rows.map(maps => maps.find(map => map.name === name)), { heads } = parts[0];
      const queries = parts.reduce((sum, part) => sum + part.rows, 0), count = parts.at(-1).count;
      const weights = new Float32Array(heads * queries * count);
      let done = 0;
      for (const part of parts) {
        for (let head = 0; head < heads; head++) {
          for (let row = 0; row < part.rows; row++) {
            const start = (head * part.rows + row) * part.count;
            weights.set(part.weights.subarray(start, start + part.count), (head * queries + done + row) * count);
          }
        }
        done += part.rows;
      }
      // As in a figure of alignment: a row of cross-attention is named by the token that it predicts.
      const isCross = name.includes("cross"), shift = isCross ? 1 : 0;
      const labels = { queries: all.slice(shift, queries + shift), keys: isCross ? from : all.slice(0, count) };
      found.push({ name, weights, heads, rows: queries, count, ...labels });
    }
    return found.map(map => ({ ...map, name: map.name.replace("_attention", "") }));
  }
}

function highest(values) {
  let best = 0;
  values.forEach((value, i) => { if (value > values[best]) best = i; });
  return best;
}
