// The vectors of positions (50 × 128), how alike positions are, and how a mix weighs the layers it reads.

import { css, inkOn, legend, signedColor } from "#color";
import { element } from "#dom";
import { matrix } from "#matrix";

export const positions = {
  id: "positions",
  needs: page => Boolean(page.run.positions || page.run.mixes?.length),
  draw(root, page) {
    if (page.run.positions) drawPositions(root, page);
    if (page.run.mixes?.length) drawMixes(root, page);
  },
};

function drawPositions(root, page) {
  const said = page.words.positions, { kind, size, table } = page.run.positions, [rows, columns] = table.shape;
  element("p", root, said.help[kind], { class: "quiet" });
  element("p", root, said.shown(rows, columns, size), { class: "quiet", id: "positions-size" });
  const count = length => [...Array(length).keys()].map(String);
  const most = table.values.reduce((high, value) => Math.max(high, Math.abs(value)), 1e-9);
  element("h2", root, said.map);
  legend(root, element, (-most).toFixed(2), most.toFixed(2), share => signedColor(2 * share - 1));
  matrix(element("section", root, "", { id: "positions" }), {
    values: table.values, rows: count(rows), columns: count(columns), color: value => signedColor(value / most), label: said.map, least: 7,
    tell: (row, column) => page.say(said.told(row, column, table.at(row, column).toFixed(6))),
  });
  const near = products(table), largest = Math.max(...near.map(Math.abs), 1e-9);
  element("h2", root, said.near);
  legend(root, element, (-largest).toFixed(2), largest.toFixed(2), share => signedColor(2 * share - 1));
  matrix(element("section", root, "", { id: "near" }), {
    values: near, rows: count(rows), columns: count(rows), color: value => signedColor(value / largest), label: said.near, least: 7, most: 10,
    tell: (row, column) => page.say(said.pair(row, column, near[row * rows + column].toFixed(4))),
  });
}

/** The dot products of all pairs of rows. */
function products(table) {
  const [rows] = table.shape, found = new Float32Array(rows * rows);
  for (let i = 0; i < rows; i++) for (let j = 0; j < rows; j++) {
    const [one, other] = [table.at(i).values, table.at(j).values];
    found[i * rows + j] = one.reduce((sum, value, k) => sum + value * other[k], 0);
  }
  return found;
}

function drawMixes(root, page) {
  const said = page.words.positions;
  element("h2", root, said.mix);
  for (const { name, weights, scale } of page.run.mixes) {
    element("h3", root, name);
    element("p", root, said.scale(scale.toFixed(4)), { class: "quiet" });
    const bars = element("div", root, "", { class: "bars mix" });
    weights.values.forEach((share, i) => {
      const bar = element("div", bars, "", { class: "bar", "data-share": share });
      element("b", bar, said.layer(i));
      element("i", bar, "", { style: `width: ${(100 * share).toFixed(2)}%; background: ${css(signedColor(0.4 + 0.6 * share))}; color: ${inkOn(signedColor(share))}` });
      element("u", bar, `${(100 * share).toFixed(2)} %`);
    });
  }
}
