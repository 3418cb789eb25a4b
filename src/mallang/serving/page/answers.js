// What came of a request: outputs with the probability of every token, labels, tags, neighbors … as figures.

import { css, weightColor } from "#color";
import { element } from "#dom";

const MOST = 20;

/** Draw one result of a verb; `context` is the text that a question was asked about. */
export function drawResult(root, verb, result, said, context) {
  const box = element("div", root, "", { class: "answer" });
  (DRAWN[verb] ?? plain)(box, result, said, context);
  if (result.note) element("div", box, result.note, { class: "quiet" });
}

/** A part of a text by the places of its characters, of which some are two units of JavaScript. */
const part = (text, start, end) => [...text].slice(start, end).join("");

const DRAWN = {
  translate: output, reply: output, reconstruct: output, generate: output, caption: output, score: scored, classify: classified, tag: tagged, coref: resolved, roles: labeled, answer: answered, choose: chosen,
  fill: filled, neighbors: near, complete: completed, similarity: similar, prefer: preferred, embed: vector,
};

/** Bars of shares between 0 and 1: [[name, share, told], …]. */
export function bars(root, rows) {
  const box = element("div", root, "", { class: "bars" }), most = Math.max(1e-9, ...rows.map(([, share]) => share));
  for (const [name, share, told, isChosen] of rows.slice(0, MOST)) {
    const bar = element("div", box, "", { class: `bar${isChosen ? " taken" : ""}` });
    element("b", bar, name, { title: name });
    element("i", bar, "", { style: `width: ${(100 * Math.max(0, share) / Math.max(1, most)).toFixed(2)}%` });
    element("u", bar, told ?? percent(share));
  }
}

const percent = share => `${(100 * share).toFixed(1)} %`;
const fixed = value => (typeof value === "number" ? value.toFixed(4) : "−∞");

function output(root, result, said) {
  if (result.input) element("div", root, result.input, { class: "quiet" });
  element("div", root, result.output || said.empty, { class: result.output ? "big output" : "big output quiet" });
  pieces(root, result.tokens, result.token_scores, said);
  if (result.nbest?.length > 1) {
    element("h3", root, said.candidates);
    const best = Math.max(...result.nbest.map(each => each.normalized ?? -Infinity));
    bars(root, result.nbest.map(({ output: text, score, normalized }) => [text, Math.exp((normalized ?? -Infinity) - best), fixed(score)]));
  }
}

/** Tokens, underlined by what they cost. */
function pieces(root, tokens, scores, said) {
  if (!tokens?.length || !scores?.length) return;
  const row = element("div", root, "", { class: "tokens" });
  let sum = 0;
  tokens.forEach((token, i) => {
    const bits = scores[i] === null ? Infinity : -scores[i] / Math.LN2;
    sum += bits;
    element("span", row, token, { class: "piece", title: `${bits.toFixed(2)} ${said.bits}`, style: `border-bottom-color: ${css(weightColor(Math.min(1, bits / 12), false))}` });
  });
  element("div", root, said.total(sum.toFixed(2), (sum / tokens.length).toFixed(2)), { class: "quiet" });
}

function scored(root, result, said) {
  element("div", root, result.text ?? `${result.source} → ${result.target}`, { class: "quiet" });
  element("div", root, `${said.score} ${fixed(result.score)}`, { class: "big" });
  pieces(root, result.tokens, result.token_scores, said);
}

function classified(root, result) {
  element("div", root, Array.isArray(result.input) ? result.input.join(" · ") : result.input, { class: "quiet" });
  element("div", root, result.output, { class: "big" });
  bars(root, Object.entries(result.probabilities).sort(([, a], [, b]) => b - a).map(([name, share]) => [name, share, undefined, name === result.output]));
}

function tagged(root, result) {
  const row = element("div", root, "", { class: "row" });
  result.words.forEach((word, i) => {
    const box = element("span", row, "", { class: "tagged", title: percent(result.probabilities[i]), style: `border-bottom-color: ${css(weightColor(result.probabilities[i] ?? 0, false))}` });
    element("span", box, word);
    element("small", box, result.tags[i]);
  });
  if (result.spans?.length) bars(root, result.spans.map(span => [`${span.text} · ${span.type}`, span.confidence]));
}

/** A text with its mentions, each with the number of its cluster. */
function resolved(root, result) {
  const places = result.clusters.flatMap((cluster, i) => cluster.map(({ start, end }) => ({ start, end, name: i + 1 }))).sort((a, b) => a.start - b.start || b.end - a.end);
  const text = element("p", root, "", { class: "big" });
  let place = 0;
  for (const { start, end, name } of places.filter((each, i) => !places.some((other, j) => j < i && other.end > each.start))) {
    text.append(part(result.input, place, start));
    element("small", element("mark", text, part(result.input, start, end), { class: "span" }), String(name));
    place = end;
  }
  text.append(part(result.input, place));
  result.clusters.forEach((cluster, i) => element("div", root, `${i + 1}: ${cluster.map(each => each.text).join(" = ")}`, { class: "quiet" }));
}

function labeled(root, result) {
  element("div", root, result.input, { class: "quiet" });
  for (const { predicate, arguments: found } of result.propositions) {
    element("h3", root, predicate);
    bars(root, found.map(each => [`${each.role} · ${each.text}`, each.confidence]));
  }
}

function answered(root, result, said, context) {
  element("div", root, result.input, { class: "quiet" });
  element("div", root, result.output || said.noAnswer, { class: "big" });
  const text = element("p", root);
  if (result.start === null) text.textContent = context;
  else {
    text.append(part(context, 0, result.start));
    element("mark", text, part(context, result.start, result.end), { class: "span" });
    text.append(part(context, result.end));
  }
  bars(root, (result.nbest.length ? result.nbest : [{ text: result.output, probability: result.score }]).map(each => [each.text || said.noAnswer, each.probability]));
}

function chosen(root, result) {
  element("div", root, result.input, { class: "quiet" });
  element("div", root, result.output, { class: "big" });
  bars(root, result.nbest.map(each => [each.output, each.probability, undefined, each.output === result.output]));
}

function filled(root, result, said) {
  element("div", root, result.output, { class: "big output" });
  result.gaps.forEach((gap, i) => {
    element("h3", root, said.gap(i + 1));
    bars(root, gap.map(each => [each.token, each.probability]));
  });
}

function near(root, result) {
  element("div", root, result.input, { class: "big" });
  bars(root, result.neighbors.map(each => [each.word, each.cosine, each.cosine.toFixed(3)]));
}

function completed(root, result, said) {
  const [entity, relation, asked] = result.input;
  element("div", root, asked === "heads" ? `? · ${relation} · ${entity}` : `${entity} · ${relation} · ?`, { class: "quiet" });
  element("div", root, result.nbest[0].output, { class: "big" });
  bars(root, result.nbest.map(({ output: name, score, known }) => [known ? `${name} · ${said.known}` : name, Math.exp(score - result.score), score.toFixed(3)]));
}

function similar(root, result) {
  element("div", root, result.input.join(" · "), { class: "quiet" });
  element("div", root, fixed(result.score), { class: "big" });
}

function preferred(root, result, said) {
  element("div", root, said.better, { class: "quiet" });
  element("div", root, result.better ?? "=", { class: "big" });
  plain(root, result);
}

function vector(root, { input, vector: values }, said) {
  element("div", root, input, { class: "quiet" });
  element("div", root, said.vector(values.length), { class: "big" });
  element("pre", root, values.map(value => value.toFixed(4)).join(" "));
}

function plain(root, result) {
  element("pre", root, JSON.stringify(result, null, 2));
}
