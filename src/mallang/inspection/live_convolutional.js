"use strict";
// Models of windows: ConvS2S, the convolutional language model, and NPLM. A state keeps the inputs of the next windows.

/** (x + y) · √½, which has the variance of x and of y. */
const halved = (x, y) => x.map((value, i) => (value + y[i]) * Math.SQRT1_2);

/** A gated linear unit: one half of the channels, times the sigmoid of the other half. */
function gated(x, rows) {
  const dim = x.length / rows / 2, gates = columns(x, rows, dim, dim);
  return columns(x, rows, 0, dim).map((value, i) => value * sigmoid(gates[i]));
}

/** Convolutions over rows of `dim` channels. */
class Convolutional extends ParallelModel {
  /** One row for every whole window: the inputs of a window, `dilation` rows apart, are one row of a linear layer. */
  convolve(name, x, dim, dilation = 1) {
    const part = this.part(name + ".linear"), width = part.weight.shape[1] / dim, rows = x.length / dim - (width - 1) * dilation;
    const windows = new Float32Array(rows * width * dim);
    for (let row = 0; row < rows; row++) {
      for (let place = 0; place < width; place++) {
        const start = (row + place * dilation) * dim;
        windows.set(x.subarray(start, start + dim), (row * width + place) * dim);
      }
    }
    return this.activate(linear(windows, rows, part), rows);
  }

  /** A window ends at its position; before the first one are zeros. Later ones stay in `windows`, by name. */
  causal(name, x, rows, windows, dilation = 1) {
    const dim = x.length / rows, kept = this.tensors[name + ".linear.weight"].shape[1] - dim;
    const seen = joined(windows[name] ?? new Float32Array(kept * dilation), x);
    windows[name] = seen.slice(x.length);
    return this.convolve(name, seen, dim, dilation);
  }

  /** A window has its position in the middle; before and after the text are zeros. */
  centered(name, x, rows) {
    const dim = x.length / rows, others = this.tensors[name + ".linear.weight"].shape[1] / dim - 1, left = Math.floor(others / 2);
    const zeros = count => new Float32Array(count * dim);
    return this.convolve(name, concat(zeros(left), x, zeros(others - left)), dim);
  }

  activate(x, rows) {
    return gated(x, rows);
  }
}

/** An encoder and a decoder of gated convolutions; every layer of the decoder attends to the source. */
class ConvS2S extends Convolutional {
  start(source) {
    const rows = source.length, embedded = this.embed("source_embedding", source, 0);
    let x = linear(embedded, rows, this.part("source_input"));
    for (let layer = 0; layer < this.config.layers; layer++) {
      x = halved(this.centered(`encoder.${layer}.convolution`, x, rows), x);
    }
    const keys = linear(x, rows, this.part("source_output"));
    const values = halved(keys, embedded).map(value => value * Math.sqrt(rows));
    return { length: 0, windows: {}, memory: { keys, values, count: rows }, maps: [] };
  }

  /** The context of every row; a query is the row, projected, and its embedding. */
  crossAttention(name, x, rows, embedded, { keys, values, count }, maps) {
    const dim = embedded.length / rows, root = Math.sqrt(dim); // attend divides by the root
    const queries = halved(linear(x, rows, this.part(name + ".query")), embedded).map(value => value * root);
    const seen = attend(queries, keys, values, { heads: 1, keyDim: dim, valueDim: dim }, () => 0, () => count - 1);
    maps.push({ name, ...seen });
    return linear(seen.context, rows, this.part(name + ".output"));
  }

  /** The logits after the last of these tokens, and the attention weights of all of them. */
  step(ids, state) {
    const rows = ids.length, maps = [], embedded = this.embed("embedding", ids, state.length);
    let x = linear(embedded, rows, this.part("input"));
    for (let layer = 0; layer < this.config.decoder_layers; layer++) {
      const convolved = this.causal(`decoder.${layer}.convolution`, x, rows, state.windows);
      const context = this.crossAttention(`decoder.${layer}.cross_attention`, convolved, rows, embedded, state.memory, maps);
      x = halved(halved(convolved, context), x);
    }
    state.length += rows;
    const last = x.subarray(x.length - x.length / rows);
    return { logits: this.output(linear(last, 1, this.part("last"))), maps };
  }
}

/** Causal convolutions over a text, with gates or with tanh; blocks of them are residual. */
class ConvolutionalLanguageModel extends Convolutional {
  activate(x, rows) {
    return this.config.gated ? gated(x, rows) : x.map(Math.tanh);
  }

  start() {
    return { windows: {}, maps: [] };
  }

  step(ids, { windows }) {
    const { blocks, block_layers: layers, bottleneck, dilation } = this.config, rows = ids.length;
    let x = this.causal("first", this.embed("embedding", ids, 0), rows, windows);
    for (let block = 0; block < blocks; block++) {
      const name = `blocks.${block}.`;
      let inside = bottleneck ? this.causal(name + "down_proj", x, rows, windows) : x;
      for (let layer = 0; layer < layers; layer++) {
        inside = this.causal(`${name}wide.${layer}`, inside, rows, windows, dilation ** (1 + block * layers + layer));
      }
      x = halved(bottleneck ? this.causal(name + "up_proj", inside, rows, windows) : inside, x);
    }
    return { logits: this.output(x.subarray(x.length - x.length / rows)), maps: [] };
  }
}

/** One hidden layer over the embeddings of the last tokens; before a text they are zeros. */
class NPLM extends ParallelModel {
  start() {
    return { seen: new Float32Array(this.tensors["hidden.weight"].shape[1]), maps: [] };
  }

  step(ids, state) {
    const window = joined(state.seen, this.embed("embedding", ids, 0)).slice(-state.seen.length);
    const hidden = linear(window, 1, this.part("hidden")).map(Math.tanh);
    state.seen = window;
    return { logits: this.output(this.config.direct ? joined(hidden, window) : hidden), maps: [] };
  }
}

Object.assign(MODELS, { convs2s: ConvS2S, conv_lm: ConvolutionalLanguageModel, nplm: NPLM });
