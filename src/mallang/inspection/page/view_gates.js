// What the gates of recurrent layers did at every token: their means as curves, and every unit as a row of colors.

import { DASHES, chart, key } from "#chart";
import { LINES, legend, signedColor, weightColor } from "#color";
import { choice, element } from "#dom";
import { matrix } from "#matrix";

const SHARES = "ifo" + "rz";

export const gates = {
  id: "gates",
  needs: page => Boolean(page.shown?.gates?.length),
  draw(root, page) {
    const said = page.words.gates, layers = page.shown.gates, layer = layers[page.state.part] ?? layers[0], names = Object.keys(layer.means);
    const gate = names.includes(page.state.gate) ? page.state.gate : names[0];
    element("p", root, said.help, { class: "quiet" });
    if (said.kinds[layer.kind]) element("p", root, said.kinds[layer.kind], { class: "quiet" });
    const row = element("div", root, "", { class: "row" });
    choice(row, said.layer, layers.map((each, i) => [i, each.name]), layers.indexOf(layer), value => page.set({ part: Number(value), token: null })).id = "gate-layer";
    choice(row, said.gate, names.map(name => [name, said.names[name]]), gate, value => page.set({ gate: value })).id = "gate";
    element("h2", root, said.mean);
    const lines = names.map((name, i) => ({ name: said.names[name], short: name, x: layer.tokens.map((_, t) => t), y: layer.means[name].values, color: LINES()[i % 4], dash: DASHES[Math.floor(i / 4) % DASHES.length] }));
    chart(root, { lines, label: said.mean, id: "gate-means", names: shortNames(layer.tokens), tell: (line, t, value) => page.say(said.told(layer.tokens[t], line.name, value.toFixed(6))) });
    key(root, lines);
    element("h2", root, `${said.units}: ${said.names[gate]}`, { id: "units" });
    const table = layer.gates[gate], [time, units] = table.shape;
    if (units < layer.units) element("p", root, said.some(units, layer.units), { class: "quiet" });
    const isShare = SHARES.includes(gate), most = isShare ? 1 : table.values.reduce((high, value) => Math.max(high, Math.abs(value)), 1e-9);
    const color = isShare ? value => weightColor(value, false) : value => signedColor(value / most);
    legend(root, element, isShare ? "0" : (-most).toFixed(2), most.toFixed(isShare ? 0 : 2), share => (isShare ? weightColor(share, false) : signedColor(2 * share - 1)));
    const values = new Float32Array(time * units);
    for (let t = 0; t < time; t++) for (let u = 0; u < units; u++) values[u * time + t] = table.at(t, u);
    matrix(element("section", root, "", { id: "gate-units" }), {
      values, rows: [...Array(units).keys()].map(u => String(u + 1)), columns: layer.tokens, color, label: said.units, most: 40, least: 9, high: 9,
      tell: (u, t) => page.say(`${said.told(layer.tokens[t], said.names[gate], values[u * time + t].toFixed(6))} (${said.unit(u + 1)})`),
    });
  },
  onKey(event, page) {
    const layers = page.shown.gates, place = layers[page.state.part] ? page.state.part : 0;
    if (event.key === "[" && place > 0) page.set({ part: place - 1 });
    else if (event.key === "]" && place < layers.length - 1) page.set({ part: place + 1 });
    else return false;
    return true;
  },
};

/** Tokens as they fit below a curve: of many only some. */
function shortNames(tokens) {
  const every = Math.ceil(tokens.length / 14);
  return tokens.map((token, i) => (i % every ? "" : [...token].slice(0, 8).join("")));
}
