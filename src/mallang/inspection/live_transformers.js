"use strict";
// Models of attention alone: Transformer, GPT, and the GPT with later components; what they share with convolutional ones.

/** What models share that read several tokens at once: their embeddings, and the output projection. */
class ParallelModel {
  constructor({ config, special, limit }, tensors) {
    Object.assign(this, { config, special, limit, tensors });
  }

  part(name) {
    return { weight: this.tensors[name + ".weight"], bias: this.tensors[name + ".bias"] };
  }

  /** The vectors of tokens: those of the decoder may be tied to those of the encoder. */
  tokenTable(side) {
    return this.tensors[side + ".own.weight"] ?? this.tensors[side + ".weight"] ?? this.tensors["source_embedding.own.weight"];
  }

  /** Token vectors, scaled, plus position vectors, from position `start` on. */
  embed(side, ids, start) {
    const { data, shape: [, dim] } = this.tokenTable(side), x = new Float32Array(ids.length * dim);
    const table = (this.tensors[side + ".positions.table.weight"] ?? this.tensors["positions.table.weight"])?.data;
    ids.forEach((id, row) => {
      for (let i = 0; i < dim; i++) {
        const vector = Math.fround(data[id * dim + i] * this.config.scale);
        x[row * dim + i] = vector + (table ? table[(start + row) * dim + i] : this.sinusoid(start + row, i, dim));
      }
    });
    return x;
  }

  sinusoid(place, i, dim) {
    if (this.config.positions !== "sinusoidal") return 0;
    const angle = place * 10000 ** (-(i - (i % 2)) / dim);
    return Math.fround(i % 2 ? Math.cos(angle) : Math.sin(angle));
  }

  output(hidden) {
    const weight = this.tensors["head.own.weight"] ?? this.tensors["head.projection.own.weight"] ?? this.tokenTable("embedding");
    return linear(hidden, 1, { weight, bias: this.tensors["head.bias"] });
  }
}

/** A Transformer, or a GPT: the decoder alone. A state holds the KV caches of one text. */
class Transformer extends ParallelModel {
  constructor(header, tensors) {
    super(header, tensors);
    const { dim, heads, key_dim: keyDim, value_dim: valueDim } = this.config;
    this.shape = { heads, keyDim: keyDim ?? dim / heads, valueDim: valueDim ?? dim / heads };
  }

  norm(x, rows, name) {
    return layerNorm(x, rows, this.part(name));
  }

  /** x and a sublayer of it, with the norm where the configuration puts it. */
  residual(x, rows, norm, sublayer) {
    const isFirst = this.config.norm === "pre", y = added(x, sublayer(isFirst ? this.norm(x, rows, norm) : x));
    return isFirst ? y : this.norm(y, rows, norm);
  }

  /** Queries and keys of the rows from position `start` on, as attention compares them. */
  compared(x, start) {
    return x;
  }

  selfAttention(name, cache, window, isCausal, maps) {
    return (x, rows) => {
      const { heads, keyDim, valueDim } = this.shape, wide = heads * keyDim;
      const all = linear(x, rows, this.part(name + ".query_key_value")), start = cache.keys.length / wide;
      cache.keys = joined(cache.keys, this.compared(columns(all, rows, wide, wide), start));
      cache.values = joined(cache.values, columns(all, rows, 2 * wide, heads * valueDim));
      const end = start + rows - 1, reach = window ?? Infinity;
      const first = row => Math.max(0, start + row - reach);
      const last = row => (isCausal ? start + row : Math.min(end, row + reach));
      const queries = this.compared(columns(all, rows, 0, wide), start);
      const seen = attend(queries, cache.keys, cache.values, this.shape, first, last);
      maps.push({ name, ...seen });
      return linear(seen.context, rows, this.part(name + ".output"));
    };
  }

  crossAttention(name, memory, maps) {
    return (x, rows) => {
      const queries = linear(x, rows, this.part(name + ".query"));
      const seen = attend(queries, memory.keys, memory.values, this.shape, () => 0, () => memory.count - 1);
      maps.push({ name, ...seen });
      return linear(seen.context, rows, this.part(name + ".output"));
    };
  }

  feedForward(name) {
    const activate = ACTIVATIONS[this.config.activation];
    return (x, rows) => linear(linear(x, rows, this.part(name + ".up_proj")).map(activate), rows, this.part(name + ".down_proj"));
  }

  block(name, x, rows, cache, window, isCausal, memory, maps) {
    const apply = (part, norm, sublayer) => this.residual(x, rows, `${name}.${norm}`, y => sublayer(y, rows));
    x = apply("self", "self_norm", this.selfAttention(name + ".self_attention", cache, window, isCausal, maps));
    if (memory) x = apply("cross", "cross_norm", this.crossAttention(name + ".cross_attention", memory, maps));
    return apply("feedforward", "feedforward_norm", this.feedForward(name + ".feedforward"));
  }

  /** Read a source, if the model has one; nothing is generated yet. */
  start(source) {
    const state = { length: 0, caches: [], memories: [], maps: [] }, rows = source?.length;
    const nothing = () => ({ keys: new Float32Array(0), values: new Float32Array(0) });
    for (let layer = 0; layer < this.config.decoder_layers; layer++) state.caches.push(nothing());
    if (!source) return state;
    let x = this.embed("source_embedding", source, 0);
    for (let layer = 0; layer < this.config.layers; layer++) {
      x = this.block(`encoder.${layer}`, x, rows, nothing(), this.config.window, false, null, state.maps);
    }
    x = this.norm(x, rows, "encoder_norm");
    const { heads, keyDim, valueDim } = this.shape;
    for (let layer = 0; layer < this.config.decoder_layers; layer++) {
      const both = linear(x, rows, this.part(`decoder.${layer}.cross_attention.key_value`));
      const keys = columns(both, rows, 0, heads * keyDim);
      state.memories.push({ keys, values: columns(both, rows, heads * keyDim, heads * valueDim), count: rows });
    }
    return state;
  }

  /** The logits after the last of these tokens, and the attention weights of all of them. */
  step(ids, state) {
    const { config } = this, rows = ids.length, maps = [];
    let x = this.embed("embedding", ids, state.length);
    for (let layer = 0; layer < config.decoder_layers; layer++) {
      const window = config.windowed === "alternate" && layer % 2 === 0 ? null : config.window;
      x = this.block(`decoder.${layer}`, x, rows, state.caches[layer], window, true, state.memories[layer], maps);
    }
    state.length += rows;
    return { logits: this.output(this.norm(x.subarray((rows - 1) * config.dim), 1, "decoder_norm")), maps };
  }
}

/** A GPT with RoPE, QK-norm, RMSNorm and soft-capped logits, each unless the configuration reverts it. */
class ModernGPT extends Transformer {
  norm(x, rows, name) {
    return this.config.normed === "rms" ? rmsNorm(x, this.config.dim) : super.norm(x, rows, name);
  }

  embed(side, ids, start) {
    return this.norm(super.embed(side, ids, start), ids.length, "embedding_norm");
  }

  compared(x, start) {
    const { keyDim } = this.shape, normed = this.config.qk_norm ? rmsNorm(x, keyDim) : x;
    return this.config.positions === "rotary" ? this.rotated(normed, start) : normed;
  }

  /** The values i and i + half of every head, rotated by the angle of their position. */
  rotated(x, start) {
    const { heads, keyDim } = this.shape, half = keyDim / 2, y = new Float32Array(x.length);
    for (let at = 0; at < x.length; at += keyDim) {
      const place = start + Math.floor(at / (heads * keyDim));
      for (let i = 0; i < half; i++) {
        const angle = place * 10000 ** (-(2 * i) / keyDim), sine = Math.fround(Math.sin(angle)), cosine = Math.fround(Math.cos(angle));
        y[at + i] = x[at + i] * cosine - x[at + half + i] * sine;
        y[at + half + i] = x[at + half + i] * cosine + x[at + i] * sine;
      }
    }
    return y;
  }

  output(hidden) {
    const logits = super.output(hidden), cap = this.config.soft_cap;
    return cap ? logits.map(logit => cap * Math.tanh(logit / cap)) : logits;
  }
}

Object.assign(MODELS, { transformer: Transformer, gpt: Transformer, modern_gpt: ModernGPT });
