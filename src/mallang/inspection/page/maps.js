// The attention maps of a text: which are there, which is chosen, and their weights.

import { layerName } from "#words";

/** The chosen map of a text; the most informative one if none is chosen. */
export function chosenMap(page) {
  const { maps, first } = page.shown;
  return maps.find(map => map.name === page.state.map) ?? maps[first];
}

/** The weights of a head, counted from 0, or the mean of all heads: queries × keys. */
export function weightsOf(map, head) {
  const [heads, rows, columns] = map.weights.shape;
  if (head !== null && head < heads) return map.weights.at(head).values;
  const mean = new Float32Array(rows * columns);
  for (let h = 0; h < heads; h++) map.weights.at(h).values.forEach((value, i) => { mean[i] += value / heads; });
  return mean;
}

/** The chosen head of a map: its index, or null for the mean. */
export function chosenHead(page, map) {
  const heads = map.weights.shape[0];
  return heads === 1 ? 0 : page.state.head !== null && page.state.head >= 0 && page.state.head < heads ? page.state.head : null;
}

export function headName(map, head, said) {
  if (head === null) return said.mean;
  return map.heads[head] === "mean" ? said.mean : `${said.head} ${map.heads[head]}`;
}

export function mapName(map, head, said) {
  return `${layerName(map.name, said)}, ${headName(map, head, said)}`;
}

/** Groups of tokens that are a word each: [{name, tokens}]; a token of no word is a group by itself. */
export function wordGroups(names, words) {
  if (!words) return names.map((name, i) => ({ name, tokens: [i], isWord: true }));
  const found = [], places = new Map();
  words.owners.slice(0, names.length).forEach((owner, i) => {
    if (owner !== null && places.has(owner)) found[places.get(owner)].tokens.push(i);
    else {
      if (owner !== null) places.set(owner, found.length);
      found.push({ name: owner === null ? names[i] : words.words[owner], tokens: [i], isWord: owner !== null });
    }
  });
  return found;
}

/** Weights between words: sums over the tokens of a key, means over those of a query. */
export function betweenWords(weights, columns, queries, keys) {
  return queries.map(query => keys.map(key => {
    let sum = 0;
    for (const row of query.tokens) for (const column of key.tokens) sum += weights[row * columns + column];
    return sum / query.tokens.length;
  }));
}
