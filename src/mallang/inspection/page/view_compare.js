// Two runs on the same text: their outputs word by word, what every token cost, and where their attention differs.

import { DASHES, chart, key } from "#chart";
import { LINES, legend, signedColor } from "#color";
import { choice, element } from "#dom";
import { chosenMap, weightsOf } from "#maps";
import { matrix } from "#matrix";
import { layerName } from "#words";

export const compare = {
  id: "compare",
  needs: page => page.data.runs.length > 1 && Boolean(page.shown),
  draw(root, page) {
    const said = page.words.compare, { runs } = page.data, other = otherRun(page);
    element("p", root, said.help, { class: "quiet" });
    const row = element("div", root, "", { class: "row" });
    element("b", row, page.run.name);
    choice(row, said.with, runs.map((run, i) => [i, run.name]).filter(([i]) => runs[i] !== page.run), runs.indexOf(other), value => page.set({ other: Number(value) })).id = "other";
    const one = page.shown, two = other.texts[page.state.text] ?? other.texts[0];
    const problem = [[page.run, one], [other, two]].find(([, text]) => text.problem);
    if (problem) {
      element("p", root, `${problem[0].name}: ${said.cannot}: ${problem[1].problem}`, { id: "cannot" });
      return;
    }
    drawOutputs(root, page, [[page.run, one], [other, two]]);
    drawBits(root, page, [[page.run, one], [other, two]]);
    drawDifference(root, page, one, two);
  },
};

function otherRun(page) {
  const { runs } = page.data, chosen = runs[page.state.other];
  return chosen && chosen !== page.run ? chosen : runs.find(run => run !== page.run);
}

/** The words of two texts that both have in the same order: the longest common subsequence. */
export function common(one, two) {
  const table = Array.from({ length: one.length + 1 }, () => new Uint16Array(two.length + 1));
  for (let i = one.length - 1; i >= 0; i--) for (let j = two.length - 1; j >= 0; j--) table[i][j] = one[i] === two[j] ? table[i + 1][j + 1] + 1 : Math.max(table[i + 1][j], table[i][j + 1]);
  const found = [new Set(), new Set()];
  for (let i = 0, j = 0; i < one.length && j < two.length;) {
    if (one[i] === two[j]) { found[0].add(i++); found[1].add(j++); } else if (table[i + 1][j] >= table[i][j + 1]) i++;
    else j++;
  }
  return found;
}

function drawOutputs(root, page, pair) {
  const said = page.words.compare, words = pair.map(([, text]) => text.output.split(/\s+/).filter(Boolean)), shared = common(...words);
  element("p", root, pair[0][1].output === pair[1][1].output ? said.same : said.differ, { id: "verdict" });
  pair.forEach(([run, text], side) => {
    const box = element("div", root, "", { class: "text", "data-side": side });
    element("span", box, `${run.name} `, { class: "quiet" });
    words[side].forEach((word, i) => {
      element(shared[side].has(i) ? "span" : "mark", box, word, shared[side].has(i) ? {} : { class: "differs" });
      box.append(" ");
    });
    if (text.score !== null && text.score !== undefined) element("span", box, text.score.toFixed(4), { class: "quiet" });
  });
}

function drawBits(root, page, pair) {
  if (!pair.every(([, text]) => text.next)) return;
  const said = page.words.compare;
  element("h2", root, said.sum);
  const lines = pair.map(([run, text], side) => {
    const from = text.prompt ?? 0, labels = text.next.labels.slice(from);
    let sum = 0;
    const y = Array.from(text.next.label_log_probs.values.slice(from), each => { sum -= each / Math.LN2; return sum; });
    return { name: run.name, x: y.map((_, i) => i + 1), y, labels, color: LINES()[side], dash: DASHES[side] };
  });
  chart(root, { lines, label: said.sum, id: "bits-so-far", tell: (line, place, value) => page.say(`${line.name}, ${line.labels[place - 1]}: ${value.toFixed(4)} ${page.words.next.bits}`) });
  key(root, lines);
}

/** The map of both runs between the same tokens: the chosen one, or the last that both have. */
function sharedMaps(page, one, two) {
  const same = (a, b) => a.length === b.length && a.every((each, i) => each === b[i]);
  const pairs = (one.maps ?? []).flatMap(map => {
    const found = (two.maps ?? []).filter(each => same(each.queries, map.queries) && same(each.keys, map.keys) && each.sides.join() === map.sides.join());
    return found.length ? [[map, found.find(each => each.name === map.name) ?? found.at(-1)]] : [];
  });
  const chosen = one.maps?.length ? chosenMap(page) : null;
  return pairs.find(([map]) => map === chosen) ?? pairs.at(-1) ?? null;
}

function drawDifference(root, page, one, two) {
  if (!one.maps?.length && !two.maps?.length) return;
  const said = page.words.compare, found = sharedMaps(page, one, two);
  element("h2", root, said.difference);
  if (!found) {
    element("p", root, said.none, { class: "quiet", id: "no-maps" });
    return;
  }
  const [first, second] = found, [a, b] = [weightsOf(first, null), weightsOf(second, null)], wide = first.keys.length;
  element("p", root, `${layerName(first.name, page.words)} − ${layerName(second.name, page.words)}, ${page.words.mean}`, { class: "quiet" });
  legend(root, element, "−1", "1", share => signedColor(2 * share - 1));
  matrix(element("section", root, "", { id: "difference" }), {
    values: a.map((value, i) => value - b[i]), rows: first.queries, columns: first.keys, color: signedColor, label: said.difference,
    tell: (row, column) => page.say(said.told(first.queries[row], first.keys[column], a[row * wide + column].toFixed(6), b[row * wide + column].toFixed(6))),
  });
}
