// Words on a plane, each with its nearest neighbors: words in their sentences, layer by layer, or those of a vocabulary.

import { choice, cut, element, shape } from "#dom";

const HIGH = 420, NAMED = 60;

export const vectors = {
  id: "vectors",
  needs: page => Boolean(page.run.vectors),
  draw(root, page) {
    const said = page.words.vectors, found = page.run.vectors, layer = found.layers.find(each => each.name === page.state.map) ?? found.layers.at(-1);
    element("p", root, found.kind === "words" ? said.words : said.help, { class: "quiet" });
    const row = element("div", root, "", { class: "row" });
    if (found.layers.length > 1) choice(row, said.layer, found.layers.map(each => [each.name, each.name]), layer.name, map => page.set({ map })).id = "vector-layer";
    const label = element("label", row, said.find, { class: "quiet", for: "find" });
    label.append(" ");
    const input = element("input", row, "", { id: "find", type: "search", list: "known", autocomplete: "off", "data-key": "find" }), list = element("datalist", row, "", { id: "known" });
    for (const word of new Set(found.words)) element("option", list, "", { value: word });
    input.addEventListener("change", () => {
      const place = found.words.indexOf(input.value.trim());
      if (place >= 0) page.set({ node: place });
    });
    element("p", root, said.explained(...layer.explained.map(share => `${(100 * share).toFixed(1)} %`)), { class: "quiet number" });
    const node = page.state.node !== null && page.state.node < found.words.length && page.state.node >= 0 ? page.state.node : null;
    const columns = element("div", root, "", { class: "columns" });
    drawPlane(element("section", columns), page, found, layer, node);
    const side = element("section", columns, "", { id: "neighbors" });
    if (node !== null) drawNeighbors(side, page, found, layer, node);
  },
};

function drawPlane(root, page, found, layer, node) {
  const width = Math.min(720, Math.max(300, root.clientWidth || 600)), { points } = layer, count = found.words.length;
  const bounds = axis => found.words.reduce(([low, high], _, i) => [Math.min(low, points.at(i, axis)), Math.max(high, points.at(i, axis))], [Infinity, -Infinity]);
  const [[left, right], [low, high]] = [bounds(0), bounds(1)];
  const x = i => 14 + ((points.at(i, 0) - left) / (right - left || 1)) * (width - 90), y = i => HIGH - 16 - ((points.at(i, 1) - low) / (high - low || 1)) * (HIGH - 36);
  const svg = shape("svg", element("div", root, "", { class: "scroll" }), { class: "drawn", id: "plane", width, height: HIGH, viewBox: `0 0 ${width} ${HIGH}`, role: "group", "aria-label": page.words.tabs.vectors });
  const near = new Set(node === null ? [] : layer.neighbors[node]);
  const isNamed = i => count <= NAMED || i === node || near.has(i);
  for (const i of [...Array(count).keys()].sort((a, b) => isNamed(a) - isNamed(b))) {
    const told = sentence(found, i), made = shape("g", svg, {
      tabindex: isNamed(i) ? 0 : null, role: "button", "aria-label": told, "data-node": i, "data-key": `point ${i}`, onmouseenter: () => page.say(told), onfocus: () => page.say(told),
      onclick: () => page.set({ node: i === node ? null : i }), onkeydown: event => { if (event.key === "Enter") page.set({ node: i }); },
    });
    shape("circle", made, { class: `point${i === node ? " chosen" : near.has(i) ? " near" : ""}`, cx: x(i), cy: y(i), r: i === node ? 6 : 4 });
    if (isNamed(i)) shape("text", made, { class: i === node ? "chosen" : "", x: x(i) + 7, y: y(i) + 4 }, cut(found.words[i], 90));
    shape("title", made, {}, told);
  }
}

/** A word within its sentence. */
const sentence = (found, i) => (found.texts ? `${found.texts[i][0]}[${found.words[i]}]${found.texts[i][1]}` : found.words[i]);

function drawNeighbors(root, page, found, layer, node) {
  const said = page.words.vectors;
  element("h2", root, said.nearest(sentence(found, node)));
  const bars = element("div", root, "", { class: "bars wide" });
  layer.neighbors[node].forEach((other, rank) => {
    const cosine = layer.cosines.at(node, rank), bar = element("div", bars, "", { class: "bar", "data-cosine": cosine });
    element("b", bar, sentence(found, other), { title: sentence(found, other) });
    element("i", bar, "", { style: `width: ${(100 * Math.max(0, cosine)).toFixed(2)}%` });
    element("u", bar, cosine.toFixed(4), { title: said.cosine });
  });
}
