"use strict";
// Recurrent models: the language models, and encoders with decoders, with and without attention. One text at a time.

const sigmoid = x => 1 / (1 + Math.exp(-x));

function concat(...parts) {
  return parts.reduce(joined);
}

/** The rows of a table that belong to some ids. */
function rowsOf({ data, shape: [, dim] }, ids, scale = 1) {
  return ids.map(id => data.slice(id * dim, (id + 1) * dim).map(value => value * scale));
}

/** One step of a cell from its gates: those of the input, and those of its state. Changes the memory. */
const CELLS = {
  lstm(own, state, memory) {
    const dim = memory.hidden.length, gate = (part, i) => own[part * dim + i] + state[part * dim + i];
    memory.cell = memory.cell.map((cell, i) => sigmoid(gate(1, i)) * cell + sigmoid(gate(0, i)) * Math.tanh(gate(2, i)));
    memory.hidden = memory.cell.map((cell, i) => sigmoid(gate(3, i)) * Math.tanh(cell));
  },
  gru(own, state, memory) {
    const dim = memory.hidden.length;
    memory.hidden = memory.hidden.map((hidden, i) => {
      const reset = sigmoid(own[i] + state[i]), kept = sigmoid(own[dim + i] + state[dim + i]);
      return (1 - kept) * Math.tanh(own[2 * dim + i] + reset * state[2 * dim + i]) + kept * hidden;
    });
  },
  tanh(own, state, memory) {
    memory.hidden = memory.hidden.map((_, i) => Math.tanh(own[i] + state[i]));
  },
  relu(own, state, memory) {
    memory.hidden = memory.hidden.map((_, i) => Math.max(0, own[i] + state[i]));
  },
};

/** What all recurrent models share. */
class Recurrent {
  constructor({ config, special, limit }, tensors) {
    Object.assign(this, { config, special, limit, tensors });
  }

  part(name) {
    return { weight: this.tensors[name + ".weight"], bias: this.tensors[name + ".bias"] };
  }

  /** The vectors of words: those of the source may be tied to those of the target. */
  words(ids, isSource = false) {
    const table = isSource ? this.tensors["own_source_embedding.weight"] : null;
    return rowsOf(table ?? this.tensors["embedding.weight"], ids, this.config.scale);
  }

  /** The memory of a stack of layers before its first word: zeros. */
  nothing(name) {
    const found = [];
    for (let layer = 0, own; (own = this.tensors[`${name}.weight_hh_l${layer}`]); layer++) {
      found.push({ hidden: new Float32Array(own.shape[1]), cell: new Float32Array(own.shape[1]) });
    }
    return found;
  }

  /** One vector through a stack of layers, whose memory it changes; the hidden vector of the last layer. */
  through(name, cell, x, memory) {
    memory.forEach((each, layer) => {
      const weights = side => ({ weight: this.tensors[`${name}.weight_${side}_l${layer}`], bias: this.tensors[`${name}.bias_${side}_l${layer}`] });
      CELLS[cell](linear(x, 1, weights("ih")), linear(each.hidden, 1, weights("hh")), each);
      x = each.hidden;
    });
    return x;
  }

  /** The hidden vector at every word of a text, and the memory after the last one. */
  read(name, cell, words) {
    const memory = this.nothing(name);
    return { outputs: words.map(word => this.through(name, cell, word, memory)), memory };
  }

  /** The maximum of the values j and dim + j. */
  maxout(x) {
    const pairs = linear(x, 1, this.part("readout.pairs")), dim = pairs.length / 2;
    return pairs.slice(0, dim).map((value, i) => Math.max(value, pairs[dim + i]));
  }

  logits(hidden) {
    const weight = this.tensors["head.own.weight"] ?? this.tensors["embedding.weight"];
    return linear(hidden, 1, { weight, bias: this.tensors["head.bias"] });
  }

  /** The logits after the last of these tokens, and where each of them attended to. */
  step(ids, state) {
    const steps = this.words(ids).map(word => this.write(word, state)), weights = steps.map(each => each.weights).filter(Boolean);
    const map = { name: "cross", heads: 1, rows: weights.length, count: weights[0]?.length, weights: weights.length && concat(...weights) };
    return { logits: this.logits(steps.at(-1).hidden), maps: weights.length ? [map] : [] };
  }
}

class RecurrentLanguageModel extends Recurrent {
  start() {
    const memories = [];
    while (this.tensors[`stacks.${memories.length}.weight_hh_l0`]) memories.push(this.nothing(`stacks.${memories.length}`));
    return { memories, maps: [] };
  }

  write(word, { memories }) {
    return { hidden: memories.reduce((x, memory, place) => this.through(`stacks.${place}`, this.config.cell, x, memory), word) };
  }
}

/** A language model whose word vectors come from characters, so that it reads words outside its vocabulary too. */
class CharacterAware extends Recurrent {
  constructor(header, tensors) {
    super(header, tensors);
    this.letters = new Map(this.config.letters.map((letter, place) => [letter, 3 + place])); // 0: nothing, 1 and 2: marks
    this.spellings = header.tokenizers.target.tokens.map(token => this.spelled(token.replace(/ /g, "▁")));
    [this.vectors, this.others] = [new Map(), new Map()];
  }

  /** The ids of the characters of a word between two marks; null if one is unknown. A special token is one character. */
  spelled(word) {
    const text = this.config.jamo ? word.replace(/[가-힣]/g, syllable => syllable.normalize("NFD")) : word;
    const ids = (this.letters.has(word) ? [word] : Array.from(text)).map(letter => this.letters.get(letter));
    return ids.includes(undefined) || !ids.length ? null : [1, ...ids.slice(0, this.config.longest - 2), 2];
  }

  /** The id under which a word outside the vocabulary is read: there are more of them than the model can write. */
  idOf(word) {
    const spelling = this.spelled(word);
    if (!this.others.has(word)) this.others.set(word, spelling ? this.spellings.push(spelling) - 1 : this.special.unk);
    return this.others.get(word);
  }

  words(ids) {
    for (const id of ids) if (!this.vectors.has(id)) this.vectors.set(id, this.vectorOf(this.spellings[id]));
    return ids.map(id => this.vectors.get(id));
  }

  /** The largest value of every filter over the windows inside a word, and highway layers. */
  vectorOf(spelling) {
    const table = this.tensors["characters.letters.weight"], found = [];
    for (let i = 0, weight; (weight = this.tensors[`characters.weights.${i}`]); i++) {
      const width = weight.shape[1] / table.shape[1], most = new Float32Array(weight.shape[0]).fill(-Infinity);
      for (let place = 0; place === 0 || place + width <= spelling.length; place++) {
        const letters = Array.from({ length: width }, (_, offset) => spelling[place + offset] ?? 0);
        linear(concat(...rowsOf(table, letters)), 1, { weight }).forEach((value, filter) => {
          most[filter] = Math.max(most[filter], value);
        });
      }
      found.push(most);
    }
    let x = added(concat(...found), this.tensors["characters.bias"].data).map(Math.tanh);
    for (let layer = 0; this.tensors[`highways.${layer}.both.weight`]; layer++) {
      const both = linear(x, 1, this.part(`highways.${layer}.both`)), dim = x.length;
      x = x.map((value, i) => value + sigmoid(both[dim + i]) * (Math.max(both[i], 0) - value));
    }
    return x;
  }

  start() {
    return { memory: this.nothing("lstm"), maps: [] };
  }

  write(word, { memory }) {
    return { hidden: this.through("lstm", "lstm", word, memory) };
  }
}

/** Deep LSTMs: the decoder begins where the encoder has ended. */
class Sutskever extends Recurrent {
  start(source) {
    const words = this.words(source, true);
    return { ...this.read("encoder", "lstm", this.config.reverse_source ? words.reverse() : words), maps: [] };
  }

  write(word, { memory }) {
    return { hidden: this.through("decoder", "lstm", word, memory) };
  }
}

/** GRUs: a summary of the source is read at every step. */
class Cho extends Recurrent {
  start(source) {
    const { memory } = this.read("encoder", "gru", this.words(source, true));
    const summary = linear(memory.at(-1).hidden, 1, this.part("summary")).map(Math.tanh);
    return { summary, memory: [{ hidden: linear(summary, 1, this.part("first_state")).map(Math.tanh) }], maps: [] };
  }

  write(word, { summary, memory }) {
    const hidden = this.through("decoder", "gru", concat(word, summary), memory);
    return { hidden: this.maxout(concat(word, hidden, summary)) };
  }
}

/** What a decoder attends to: the weights of the source positions, and their weighted sum. */
class Attending extends Recurrent {
  look(query, { keys, memory }) {
    const { v } = this.score, weights = new Float32Array(keys.length), context = new Float32Array(memory[0].length);
    keys.forEach((key, place) => {
      let sum = 0;
      for (let i = 0; i < key.length; i++) sum += v ? v[i] * Math.tanh(query[i] + key[i]) : query[i] * key[i];
      weights[place] = sum;
    });
    softmax(weights, 0, weights.length);
    memory.forEach((each, place) => {
      for (let i = 0; i < each.length; i++) context[i] += weights[place] * each[i];
    });
    return { weights, context };
  }

  /** The score function: its v, and the linear layers of queries and of keys, where it has them. */
  get score() {
    return (this.known ??= this.scoreOf());
  }

  scoreOf() {
    const of = name => this.tensors[`cross_attention.score.${name}`], both = of("joined");
    if (!both) return { v: of("v")?.data, query: of("query.weight"), key: of("key.weight") };
    const [rows, wide] = both.shape, side = start => ({ shape: [rows, wide / 2], data: columns(both.data, rows, start, wide / 2) });
    return { v: of("v").data, query: side(0), key: side(wide / 2) };
  }

  asked(state) {
    return this.score.query ? linear(state, 1, { weight: this.score.query }) : state;
  }

  remembered(memory) {
    return this.score.key ? memory.map(each => linear(each, 1, { weight: this.score.key })) : memory;
  }
}

/** A bidirectional encoder; the decoder attends from its state before each word. */
class Bahdanau extends Attending {
  start(source) {
    const words = this.words(source, true), there = this.read("encoder.forwards.0", "gru", words);
    const back = this.read("encoder.backwards.0", "gru", [...words].reverse()), last = words.length - 1;
    const memory = there.outputs.map((output, place) => concat(output, back.outputs[last - place]));
    const hidden = linear(back.memory[0].hidden, 1, this.part("first_state")).map(Math.tanh);
    return { memory, keys: this.remembered(memory), now: { hidden }, maps: [] };
  }

  write(word, state) {
    const { now } = state, { weights, context } = this.look(this.asked(now.hidden), state);
    const own = added(linear(word, 1, this.part("word_gates")), linear(context, 1, this.part("context_gates")));
    CELLS.gru(own, linear(now.hidden, 1, this.part("state_gates")), now);
    return { hidden: this.maxout(concat(now.hidden, word, context)), weights };
  }
}

/** Deep LSTMs; the decoder attends from its current state, and may be fed what came of that. */
class Luong extends Attending {
  start(source) {
    const { outputs, memory: layers } = this.read("encoder", "lstm", this.words(source, true));
    return { memory: outputs, keys: this.remembered(outputs), layers, fed: new Float32Array(this.config.dim), maps: [] };
  }

  write(word, state) {
    const hidden = this.through("decoder", "lstm", this.config.input_feeding ? concat(word, state.fed) : word, state.layers);
    const { weights, context } = this.look(this.asked(hidden), state);
    state.fed = linear(concat(context, hidden), 1, this.part("combine")).map(Math.tanh);
    return { hidden: state.fed, weights };
  }
}

Object.assign(MODELS, {
  rnn_lm: RecurrentLanguageModel, char_aware: CharacterAware, sutskever: Sutskever, cho: Cho, bahdanau: Bahdanau, luong: Luong,
});
