// Attention of every layer and head: thumbnails, one of them large, and the links of its tokens.

import { legend, paint, weightColor } from "#color";
import { check, element } from "#dom";
import { links } from "#links";
import { chosenHead, chosenMap, headName, mapName, weightsOf } from "#maps";
import { matrix, table } from "#matrix";
import { layerName } from "#words";

export const attention = {
  id: "attention",
  needs: page => Boolean(page.shown?.maps?.length),
  draw(root, page) {
    const said = page.words.attention, map = chosenMap(page), head = chosenHead(page, map);
    element("p", root, said.help, { class: "quiet" });
    drawHeads(root, page, map, head);
    const row = element("div", root, "", { class: "row" });
    check(row, said.root, page.state.root === 1, on => page.set({ root: on ? 1 : 0 }));
    legend(row, element, "0", "1", share => weightColor(share, page.state.root === 1));
    element("h2", root, mapName(map, head, page.words), { id: "focus" });
    drawFocus(root, page, map, weightsOf(map, head));
    element("p", root, said.caution, { class: "quiet" });
  },
  onKey(event, page) {
    const { maps } = page.shown, map = chosenMap(page), place = maps.indexOf(map), heads = map.weights.shape[0];
    if (/^[0-9]$/.test(event.key) && Number(event.key) <= heads) page.set({ head: event.key === "0" ? null : Number(event.key) - 1 });
    else if (event.key === "[" && place > 0) page.set({ map: maps[place - 1].name });
    else if (event.key === "]" && place < maps.length - 1) page.set({ map: maps[place + 1].name });
    else if (event.key === "ArrowLeft" || event.key === "ArrowRight") {
      const token = (page.state.token ?? (event.key === "ArrowRight" ? -1 : 1)) + (event.key === "ArrowRight" ? 1 : -1);
      page.set({ token: Math.min(map.queries.length - 1, Math.max(0, token)) });
    } else return false;
    return true;
  },
};

function drawHeads(root, page, chosen, head) {
  const grid = element("div", root, "", { class: "heads", id: "heads" });
  for (const map of page.shown.maps) {
    element("span", grid, layerName(map.name, page.words));
    const row = element("div", grid, "", { class: "thumbs" }), count = map.weights.shape[0];
    for (const each of [...Array(count).keys(), ...(count > 1 ? [null] : [])]) {
      const name = `${layerName(map.name, page.words)}, ${headName(map, each, page.words)}`;
      const button = element("button", row, "", {
        type: "button", class: "thumb", title: name, "aria-label": name, "aria-pressed": String(map === chosen && each === head), "data-key": `${map.name} ${each}`,
        onclick: () => page.set({ map: map.name, head: each }),
      });
      paint(element("canvas", button), weightsOf(map, each), map.queries.length, map.keys.length, weight => weightColor(weight, page.state.root === 1));
    }
  }
}

function drawFocus(root, page, map, weights) {
  const said = page.words.attention, wide = map.keys.length, at = (i, j) => weights[i * wide + j];
  const columns = element("div", root, "", { class: "columns" });
  const left = element("section", columns), right = element("section", columns);
  const titles = map.sides.map(side => page.words.side[side]);
  const locked = page.state.token !== null && page.state.token < map.queries.length ? page.state.token : null;
  const lock = ({ row = null }) => { if (row !== null) page.set({ token: row === page.state.token ? null : row }); };
  const made = matrix(left, {
    values: weights, rows: map.queries, columns: map.keys, color: weight => weightColor(weight, page.state.root === 1), label: mapName(map, chosenHead(page, map), page.words),
    tell: (row, column) => {
      page.say(said.told(map.queries[row], map.keys[column], at(row, column).toFixed(6)));
      drawn.show({ row }, true);
    },
    lock: row => lock({ row }),
  });
  element("h3", right, said.links);
  const drawn = links(right, {
    rows: map.queries, columns: map.keys, weight: at, label: said.links, titles, lock,
    tell: ({ row, column }) => {
      made.mark(row, column);
      page.say(summary(page, map, at, row, column));
    },
  });
  const rest = () => {
    drawn.show({ row: locked }, true);
    made.mark(locked, null);
  };
  for (const each of [made.box, drawn.drawn]) each.addEventListener("pointerleave", rest);
  rest();
  const open = element("details", root);
  element("summary", open, said.table);
  open.addEventListener("toggle", () => {
    if (open.open && open.children.length === 1) table(open, { values: weights, rows: map.queries, columns: map.keys, label: said.table });
  });
}

/** The three strongest links of a token, in words. */
function summary(page, map, at, row, column) {
  const said = page.words.attention, byRow = row !== null, names = byRow ? map.keys : map.queries;
  const found = names.map((name, i) => [byRow ? at(row, i) : at(i, column), name]).sort((a, b) => b[0] - a[0]).slice(0, 3);
  const list = found.map(([weight, name]) => `${name} ${weight.toFixed(3)}`).join(", ");
  return `${byRow ? said.row(map.queries[row]) : said.column(map.keys[column])}: ${list}`;
}
