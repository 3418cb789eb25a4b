// Two columns of tokens, and a line from every token to those that it attends to.

import { cut, element, shape } from "#dom";

const STEP = 22, SIDE = 108;

/** `weight(row, column)`; rows attend, and stand on the right; columns are attended to, and stand on the left. */
export function links(parent, { rows, columns, weight, label, titles, tell, lock }) {
  const width = Math.min(460, Math.max(300, parent.clientWidth || 460)), high = Math.max(rows.length, columns.length) * STEP + 34;
  const drawn = shape("svg", element("div", parent, "", { class: "scroll" }), {
    class: "drawn links", width, height: high, viewBox: `0 0 ${width} ${high}`, role: "group", "aria-label": label,
  });
  shape("text", drawn, { x: SIDE, y: 13, "text-anchor": "end", class: "small" }, titles[1]);
  shape("text", drawn, { x: width - SIDE, y: 13, class: "small" }, titles[0]);
  const lines = shape("g", drawn);
  const y = place => 34 + place * STEP;
  const left = columns.map((name, j) => token(name, { x: SIDE, y: y(j), end: true }, () => ({ column: j })));
  const right = rows.map((name, i) => token(name, { x: width - SIDE, y: y(i), end: false }, () => ({ row: i })));

  function token(name, { x, y: height, end }, what) {
    const made = shape("g", drawn, {
      tabindex: 0, role: "button", "aria-label": name, onmouseenter: () => show(what()), onfocus: () => show(what()),
      onclick: () => lock?.(what()), onkeydown: event => { if (event.key === "Enter") lock?.(what()); },
    });
    shape("rect", made, { class: "back", x: end ? x - SIDE + 2 : x - 4, y: height - 15, width: SIDE, height: STEP - 1, fill: "transparent", rx: 4 });
    const text = shape("text", made, { x: end ? x - 4 : x + 4, y: height, "text-anchor": end ? "end" : "start" }, cut(name, SIDE - 8));
    shape("title", made, {}, name);
    return text;
  }

  function line(i, j, strong) {
    const share = weight(i, j);
    if (share < 0.01) return;
    const opacity = strong ? 0.15 + 0.85 * share : 0.5 * share;
    shape("path", lines, {
      class: "link", d: `M${SIDE + 2} ${y(j) - 5}C${width / 2} ${y(j) - 5} ${width / 2} ${y(i) - 5} ${width - SIDE - 2} ${y(i) - 5}`,
      "stroke-width": (strong ? 0.5 + 5 * share : 0.5 + 2.5 * share).toFixed(2), opacity: opacity.toFixed(3),
      "data-row": i, "data-column": j, "data-weight": share,
    });
  }

  function show({ row = null, column = null } = {}, silent = false) {
    lines.replaceChildren();
    rows.forEach((_, i) => columns.forEach((_, j) => {
      if ((row === null && column === null) || row === i || column === j) line(i, j, row !== null || column !== null);
    }));
    right.forEach((each, i) => each.classList.toggle("chosen", i === row));
    left.forEach((each, j) => each.classList.toggle("chosen", j === column));
    if (!silent) tell?.({ row, column });
  }
  return { show, drawn };
}
