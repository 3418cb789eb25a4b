// Attention with all its numbers, step by step: basic self-attention, one head, then all heads joined and projected.

import { signedColor, weightColor } from "#color";
import { check, choice, element } from "#dom";
import { matrix, table } from "#matrix";
import { layerName } from "#words";

const SMALL = 12, TERMS = 3;

export const numbers = {
  id: "numbers",
  needs: page => Boolean(page.shown?.numbers?.length),
  draw(root, page) {
    const said = page.words.numbers, layers = page.shown.numbers, layer = chosen(page), head = headOf(page, layer), heads = layer.q.shape[0];
    element("p", root, said.help, { class: "quiet" });
    const row = element("div", root, "", { class: "row" });
    choice(row, page.words.layer, layers.map(each => [each.name, layerName(each.name, page.words)]), layer.name, map => page.set({ map })).id = "layer";
    choice(row, said.head, [...Array(heads).keys()].map(i => [i, i + 1]), head, value => page.set({ head: Number(value) })).id = "head";
    check(row, said.table, page.state.table === 1, on => page.set({ table: on ? 1 : 0 })).id = "table";
    const steps = stepsOf(layer, head), shown = Math.min(Math.max(1, page.state.rung), steps.length);
    const box = element("div", root, "", { id: "rungs" });
    steps.slice(0, shown).forEach((step, i) => drawStep(box, page, step, { isNow: i === shown - 1, layer, head }));
    const buttons = element("div", root, "", { class: "row" });
    const button = (id, text, rung, isOff) => element("button", buttons, text, { type: "button", id, "data-key": id, disabled: isOff, onclick: () => page.set({ rung }) });
    button("previous-step", said.previous, shown - 1, shown === 1);
    button("next-step", `${said.next} (${shown} / ${steps.length})`, shown + 1, shown === steps.length);
    button("all-steps", page.words.all, steps.length, shown === steps.length);
  },
  onKey(event, page) {
    const layers = page.shown.numbers, layer = chosen(page), place = layers.indexOf(layer), heads = layer.q.shape[0];
    const count = stepsOf(layer, headOf(page, layer)).length, shown = Math.min(Math.max(1, page.state.rung), count);
    if (event.key === " " || event.key === "ArrowRight") page.set({ rung: Math.min(count, shown + 1) });
    else if (event.key === "ArrowLeft") page.set({ rung: Math.max(1, shown - 1) });
    else if (/^[1-9]$/.test(event.key) && Number(event.key) <= heads) page.set({ head: Number(event.key) - 1 });
    else if (event.key === "[" && place > 0) page.set({ map: layers[place - 1].name });
    else if (event.key === "]" && place < layers.length - 1) page.set({ map: layers[place + 1].name });
    else return false;
    document.querySelector(".step.now")?.scrollIntoView({ block: "nearest" });
    return true;
  },
};

const chosen = page => page.shown.numbers.find(each => each.name === page.state.map) ?? page.shown.numbers[0];
const headOf = (page, layer) => (page.state.head !== null && page.state.head >= 0 && page.state.head < layer.q.shape[0] ? page.state.head : 0);

/** Rows × columns of numbers with their shape. */
const tableOf = (values, rows, columns) => ({ values, rows, columns });
const own = found => tableOf(found.values, ...found.shape);

/** A · Bᵀ, or A · B. */
function product(a, b, isTransposed) {
  const columns = isTransposed ? b.rows : b.columns, found = new Float64Array(a.rows * columns);
  for (let i = 0; i < a.rows; i++) for (let j = 0; j < columns; j++) {
    let sum = 0;
    for (let k = 0; k < a.columns; k++) sum += a.values[i * a.columns + k] * (isTransposed ? b.values[j * b.columns + k] : b.values[k * b.columns + j]);
    found[i * columns + j] = sum;
  }
  return tableOf(found, a.rows, columns);
}

const mapped = (a, change) => tableOf(Float64Array.from(a.values, change), a.rows, a.columns);

/** Every row becomes weights that sum to 1; a row that may see nothing has none. */
export function softmax(a) {
  const found = new Float64Array(a.values.length);
  for (let i = 0; i < a.rows; i++) {
    const row = a.values.subarray(i * a.columns, (i + 1) * a.columns), high = Math.max(...row);
    const sum = row.reduce((total, value) => total + Math.exp(value - high), 0);
    row.forEach((value, j) => { found[i * a.columns + j] = high === -Infinity ? 0 : Math.exp(value - high) / sum; });
  }
  return tableOf(found, a.rows, a.columns);
}

/** All steps of a layer for one head; `dot` are the tables that a cell is the dot product of. */
export function stepsOf(layer, head) {
  const x = own(layer.x), mask = layer.mask.values, [q, k, v, weights] = ["q", "k", "v", "weights"].map(name => own(layer[name].at(head)));
  const hide = scores => mapped(scores, (value, i) => (mask[i] ? value : -Infinity)), root = Math.sqrt(q.columns);
  const scores = product(q, k, true), scaled = mapped(scores, value => value / root), masked = hide(scaled), context = product(weights, v, false);
  const steps = [{ id: "x", of: "queries", table: x }];
  if (layer.memory) steps.push({ id: "memory", of: "keys", table: own(layer.memory) });
  else {
    const basic = product(x, x, true), share = softmax(hide(basic));
    steps.push({ id: "bs", between: true, table: basic, dot: [x, x, true] }, { id: "bw", between: true, table: share, isShare: true }, { id: "by", of: "queries", table: product(share, x, false), dot: [share, x, false] });
  }
  const heads = [...Array(layer.q.shape[0]).keys()].map(i => product(own(layer.weights.at(i)), own(layer.v.at(i)), false));
  const wide = heads.length * v.columns, joined = new Float64Array(x.rows * wide);
  heads.forEach((each, h) => each.values.forEach((value, i) => { joined[Math.floor(i / v.columns) * wide + h * v.columns + (i % v.columns)] = value; }));
  return [
    ...steps,
    { id: "q", of: "queries", table: q }, { id: "k", of: "keys", table: k }, { id: "v", of: "keys", table: v },
    { id: "scores", between: true, table: scores, dot: [q, k, true] }, { id: "scaled", between: true, table: scaled, over: [scores, root] }, { id: "masked", between: true, table: masked },
    { id: "weights", between: true, table: weights, isShare: true }, { id: "context", of: "queries", table: context, dot: [weights, v, false] },
    { id: "heads", of: "queries", table: tableOf(joined, x.rows, wide) }, { id: "output", of: "queries", table: own(layer.output) },
  ];
}

function drawStep(box, page, step, { isNow, layer, head }) {
  const said = page.words.numbers, [formula, what] = said.steps[step.id], { table: found } = step;
  const made = element("section", box, "", { class: `step${isNow ? " now" : ""}`, "data-step": step.id });
  if (step.id === "bs") element("h2", made, said.basic);
  if (step.id === "q") element("h2", made, said.one(head + 1));
  if (step.id === "heads") element("h2", made, said.joined);
  element("h3", made, `${formula}   ${found.rows} × ${found.columns}`);
  element("p", made, what, { class: "quiet" });
  const rows = layer[step.of ?? "queries"], columns = step.between ? layer.keys : [...Array(found.columns).keys()].map(i => String(i + 1));
  const most = found.values.reduce((high, value) => (Number.isFinite(value) ? Math.max(high, Math.abs(value)) : high), 1e-9);
  const color = step.isShare ? value => weightColor(value, page.state.root === 1) : value => signedColor(Number.isFinite(value) ? value / most : 0);
  const label = `${formula}, ${layerName(layer.name, page.words)}`;
  if (page.state.table === 1 || (found.columns <= SMALL && found.rows <= SMALL)) table(made, { values: found.values, rows, columns, label, digits: 3, shade: color });
  if (found.columns > SMALL || found.rows > SMALL) {
    matrix(made, { values: found.values, rows, columns, color, label, least: step.between ? 9 : 4, most: 26, tell: (i, j) => page.say(tell(said, step, rows, columns, i, j)) });
  } else for (const cell of made.querySelectorAll("td[data-cell]")) {
    const place = Number(cell.dataset.cell), say = () => page.say(tell(said, step, rows, columns, Math.floor(place / found.columns), place % found.columns));
    cell.addEventListener("pointerenter", say);
    cell.addEventListener("click", say);
  }
}

const spell = value => (value === -Infinity ? "−∞" : value.toFixed(6));

/** A cell, and how it was computed from those before it. */
function tell(said, step, rows, columns, i, j) {
  const value = step.table.values[i * step.table.columns + j], name = `${rows[i]}, ${columns[j]}: ${spell(value)}`;
  if (step.over) return `${name} = ${step.over[0].values[i * step.table.columns + j].toFixed(6)} / ${step.over[1].toFixed(4)}`;
  if (!step.dot) return name;
  const [a, b, isTransposed] = step.dot, terms = [];
  for (let k = 0; k < Math.min(TERMS, a.columns); k++) terms.push(`${a.values[i * a.columns + k].toFixed(3)} × ${(isTransposed ? b.values[j * b.columns + k] : b.values[k * b.columns + j]).toFixed(3)}`);
  return `${name} = ${terms.join(" + ")}${a.columns > TERMS ? " + …" : ""}`;
}
