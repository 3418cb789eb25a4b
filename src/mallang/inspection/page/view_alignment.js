// The alignment of the output that was really produced: words of the source above, of the output below, ribbons between.

import { cut, element, shape, slider, widthOf } from "#dom";
import { betweenWords, chosenHead, mapName, weightsOf, wordGroups } from "#maps";

const crossing = shown => (shown?.maps ?? []).filter(map => map.sides[1] === "source" && map.sides[0] !== "source");

export const alignment = {
  id: "alignment",
  needs: page => crossing(page.shown).length > 0,
  draw(root, page) {
    const said = page.words.alignment, maps = crossing(page.shown), { words } = page.shown;
    const map = maps.find(each => each.name === page.state.map) ?? maps.at(-1), head = map.name === page.state.map ? chosenHead(page, map) : map.weights.shape[0] > 1 ? null : 0;
    const queries = wordGroups(map.queries, words[map.sides[0]]), keys = wordGroups(map.keys, words[map.sides[1]]);
    const weights = betweenWords(weightsOf(map, head), map.keys.length, queries, keys);
    element("p", root, said.help, { class: "quiet" });
    element("p", root, said.read(mapName(map, head, page.words)), { class: "quiet", id: "read-off" });
    const sliders = element("div", root, "", { class: "sliders" });
    let threshold = 0.1;
    slider(sliders, said.threshold, { id: "threshold", min: 0, max: 0.9, step: 0.05, value: threshold, spell: each => each.toFixed(2) }, value => { threshold = value; ribbons(null); });
    const drawn = drawWords(root, queries, keys), lines = drawn.lines;
    function ribbons(chosen) {
      lines.replaceChildren();
      weights.forEach((row, i) => {
        const best = row.indexOf(Math.max(...row));
        row.forEach((share, j) => {
          if (share < threshold || (chosen && chosen.row !== i && chosen.column !== j)) return;
          const [x, y] = [drawn.top[j], drawn.bottom[i]];
          shape("path", lines, {
            class: "link", d: `M${x} 32C${x} 90 ${y} 90 ${y} 148`, "stroke-width": 1 + 14 * share, opacity: j === best ? 0.75 : 0.25,
            "data-row": i, "data-column": j, "data-weight": share, "data-best": j === best,
          });
        });
      });
    }
    const tell = (row, column) => {
      ribbons({ row, column });
      const list = row !== undefined ? weights[row].map((share, j) => [share, said.told(queries[row].name, keys[j].name, share.toFixed(3))])
        : weights.map((each, i) => [each[column], said.told(queries[i].name, keys[column].name, each[column].toFixed(3))]);
      page.say(list.sort((a, b) => b[0] - a[0]).slice(0, 3).map(each => each[1]).join("; "));
    };
    drawn.listen(tell, () => ribbons(null));
    ribbons(null);
    element("h3", root, said.list);
    const strongest = queries.map((query, i) => [query, keys[weights[i].indexOf(Math.max(...weights[i]))]]).filter(([query]) => query.isWord);
    element("p", root, strongest.map(([query, key]) => `${key.name}–${query.name}`).join("  "), { id: "strongest", class: "number" });
  },
};

function drawWords(root, queries, keys) {
  const place = names => {
    let x = 8;
    return names.map(({ name }) => { const wide = Math.min(150, Math.max(28, widthOf(name, 15))) + 16, middle = x + wide / 2; x += wide; return { middle, end: x }; });
  };
  const [above, below] = [place(keys), place(queries)], width = Math.max(above.at(-1)?.end ?? 0, below.at(-1)?.end ?? 0) + 8;
  const shift = list => (width - (list.at(-1)?.end ?? 0)) / 2;
  const top = above.map(each => each.middle + shift(above)), bottom = below.map(each => each.middle + shift(below));
  const svg = shape("svg", element("div", root, "", { class: "scroll" }), { class: "drawn", id: "ribbons", width, height: 180, role: "group" });
  const lines = shape("g", svg);
  const word = (name, x, y, on) => {
    const made = shape("g", svg, { tabindex: 0, role: "button", "aria-label": name });
    shape("rect", made, { class: "back", x: x - 30, y: y - 16, width: 60, height: 22, fill: "transparent", rx: 4 });
    shape("text", made, { x, y, "text-anchor": "middle", style: "font-size: 15px" }, cut(name, 150, 15));
    on.push(made);
  };
  const [tops, bottoms] = [[], []];
  keys.forEach(({ name }, j) => word(name, top[j], 24, tops));
  queries.forEach(({ name }, i) => word(name, bottom[i], 166, bottoms));
  return {
    lines, top, bottom,
    listen(tell, leave) {
      tops.forEach((each, j) => ["mouseenter", "focus", "click"].forEach(kind => each.addEventListener(kind, () => tell(undefined, j))));
      bottoms.forEach((each, i) => ["mouseenter", "focus", "click"].forEach(kind => each.addEventListener(kind, () => tell(i, undefined))));
      svg.addEventListener("mouseleave", leave);
    },
  };
}
