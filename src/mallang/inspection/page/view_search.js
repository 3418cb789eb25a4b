// The search tree: a column per step, what was kept and what was pruned, and why.

import { check, cut, element, shape, slider } from "#dom";

const WIDE = 92, HIGH = 22, MOST = 400;
const SIGNS = { kept: "●", ended: "■" };

export const search = {
  id: "search",
  needs: page => Boolean(page.shown?.tree),
  draw(root, page) {
    const said = page.words.search, { tree } = page.shown, steps = Math.max(...tree.steps);
    element("p", root, said.help, { class: "quiet" });
    const facts = [said.facts(tree.method, tree.parents.length - 1), tree.proven === null || tree.proven === undefined ? "" : tree.proven ? said.proven : said.unproven];
    element("p", root, facts.filter(Boolean).join(", "), { class: "quiet", id: "tree-facts" });
    const row = element("div", root, "", { class: "row" });
    check(row, said.pruned, page.state.pruned === 1, on => page.set({ pruned: on ? 1 : 0 }));
    const sliders = element("div", root, "", { class: "sliders" });
    slider(sliders, said.step, { id: "step", min: 1, max: steps, step: 1, value: shownSteps(page, steps) }, step => { page.keep({ step: step === steps ? 0 : step }); redraw(); });
    const note = element("p", root, "", { class: "quiet number", id: "tree-hidden" }), box = element("div", root, "", { class: "scroll" });
    const path = element("p", root, "", { class: "number", id: "tree-path" });
    function redraw() {
      const { nodes, hidden } = chosenNodes(page, steps);
      note.textContent = hidden ? said.hidden(hidden) : "";
      box.replaceChildren();
      drawTree(box, page, nodes, path);
    }
    redraw();
    legend(root, page);
  },
  onKey(event, page) {
    if (event.key !== "ArrowLeft" && event.key !== "ArrowRight") return false;
    const { tree } = page.shown, steps = Math.max(...tree.steps);
    const step = Math.min(steps, Math.max(1, shownSteps(page, steps) + (event.key === "ArrowRight" ? 1 : -1)));
    page.set({ step: step === steps ? 0 : step });
    return true;
  },
};

const shownSteps = (page, steps) => (page.state.step > 0 ? Math.min(page.state.step, steps) : steps);

/** The nodes up to the step shown; of very many those with the highest scores, and all that lead to outputs. */
function chosenNodes(page, steps) {
  const { tree } = page.shown, most = shownSteps(page, steps), needed = new Set([0]);
  for (const output of tree.outputs) for (const node of ancestors(tree, output)) needed.add(node);
  const isThere = node => tree.steps[node] <= most && (page.state.pruned === 1 || needed.has(node) || ["kept", "ended"].includes(fateOf(tree, node)));
  const all = tree.parents.map((_, node) => node).filter(isThere);
  if (all.length <= MOST) return { nodes: all, hidden: 0 };
  const kept = new Set(all.filter(node => needed.has(node)));
  for (const node of all.toSorted((a, b) => tree.normalized.at(b) - tree.normalized.at(a))) {
    if (kept.size >= MOST) break;
    for (const each of ancestors(tree, node)) kept.add(each);
  }
  return { nodes: all.filter(node => kept.has(node)), hidden: all.length - kept.size };
}

const fateOf = (tree, node) => tree.known_fates[tree.fates[node]];

/** A node, its parent, and so on up to the beginning. */
export function ancestors(tree, node) {
  const found = [];
  for (let each = node; each >= 0; each = tree.parents[each]) found.push(each);
  return found;
}

/** The row of every node: the best continuation of a prefix is beside it, the others are below. */
export function rowsOf(tree, nodes) {
  const children = new Map(nodes.map(node => [node, []])), rows = new Map();
  for (const node of nodes) if (tree.parents[node] >= 0) children.get(tree.parents[node])?.push(node);
  let next = 0;
  const open = [nodes[0]];
  while (open.length) {
    const node = open.pop(), own = children.get(node).sort((a, b) => tree.total.at(b) - tree.total.at(a));
    const parent = tree.parents[node], isBest = parent >= 0 && children.get(parent)[0] === node;
    rows.set(node, isBest ? rows.get(parent) : next++);
    open.push(...own.toReversed());
  }
  return rows;
}

function drawTree(box, page, nodes, path) {
  const { tree } = page.shown, rows = rowsOf(tree, nodes), best = new Set(tree.outputs.length ? ancestors(tree, tree.outputs[0]) : []);
  const chosen = new Set(nodes.includes(page.state.node) ? ancestors(tree, page.state.node) : []);
  const width = 20 + WIDE * (1 + Math.max(...nodes.map(node => tree.steps[node]))), high = 16 + HIGH * (1 + Math.max(...rows.values()));
  const svg = shape("svg", box, { class: "drawn", id: "tree", width, height: high, viewBox: `0 0 ${width} ${high}`, role: "group", "aria-label": page.words.tabs.search });
  const x = node => 12 + WIDE * tree.steps[node], y = node => 16 + HIGH * rows.get(node);
  for (const node of nodes) {
    const parent = tree.parents[node];
    if (parent < 0) continue;
    const from = x(parent) + 60, kind = chosen.has(node) ? "branch on" : best.has(node) ? "branch best" : "branch";
    shape("path", svg, { class: kind, d: `M${from} ${y(parent)}C${from + 20} ${y(parent)} ${from + 10} ${y(node)} ${x(node) - 4} ${y(node)}` });
  }
  for (const node of nodes) drawNode(svg, page, node, { x: x(node), y: y(node), best: best.has(node), path });
  tell(page, path, page.state.node ?? tree.outputs[0] ?? 0, false);
}

function drawNode(svg, page, node, { x, y, best, path }) {
  const { tree } = page.shown, fate = fateOf(tree, node), token = tree.tokens[node], show = () => tell(page, path, node, true);
  const made = shape("g", svg, {
    tabindex: 0, role: "button", "aria-label": `${token}: ${page.words.search.fates[fate] ?? ""}`, "data-key": `node ${node}`, "data-node": node, "data-fate": fate,
    onmouseenter: show, onfocus: show, onclick: () => page.set({ node: page.state.node === node ? null : node }),
    onkeydown: event => { if (event.key === "Enter") page.set({ node }); },
  });
  const kind = `${node === page.state.node ? "chosen" : ""} ${best ? "best" : ""} ${fate === "kept" || fate === "ended" ? "" : "pruned"}`;
  shape("rect", made, { class: "back", x: x - 4, y: y - HIGH / 2, width: WIDE - 14, height: HIGH - 1, fill: "transparent", rx: 4 });
  shape("text", made, { x, y: y + 4, class: kind }, `${SIGNS[fate] ?? "×"} ${cut(token, WIDE - 34)}`);
}

/** The path to a node, its numbers, and what happened to it. */
function tell(page, path, node, aloud) {
  const { tree } = page.shown, said = page.words.search, token = tree.tokens[node];
  path.textContent = ancestors(tree, node).toReversed().map(each => tree.tokens[each]).join(" ");
  if (!aloud || tree.parents[node] < 0) return;
  const share = Math.exp(tree.log_prob.at(node)).toFixed(4), spell = value => (Number.isFinite(value) ? value.toFixed(4) : "−∞");
  page.say(`${said.told(token, share, spell(tree.total.at(node)), spell(tree.normalized.at(node)), spell(tree.bound.at(node)))}; ${said.fates[fateOf(tree, node)]}`);
}

function legend(root, page) {
  const { tree } = page.shown, said = page.words.search, list = element("p", root, "", { class: "quiet", id: "fates" });
  const there = new Set(tree.fates.map(fate => tree.known_fates[fate]));
  list.textContent = [...there].map(fate => `${SIGNS[fate] ?? "×"} ${said.fates[fate]}`).join(" · ");
}
