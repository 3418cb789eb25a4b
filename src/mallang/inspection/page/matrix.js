// A table of numbers as colors, with a label for each row and column; a cell is chosen by mouse, finger or arrow keys.

import { css, inkOn, paint } from "#color";
import { cut, element, shape, widthOf } from "#dom";

/**
 * `values` rows × columns; `rows` and `columns` are labels; `color(value)`; `tell(row, column)` is called for the cell
 * under the mouse, `lock(row, column)` when it is clicked; returns `mark(row, column)`.
 */
export function matrix(parent, { values, rows, columns, color, label, tell, lock, most = 32, least = 9, high: tall, width }) {
  const high = rows.length, wide = columns.length;
  const left = Math.min(110, Math.max(0, ...rows.map(each => widthOf(each)))) + 8;
  const top = Math.min(100, Math.max(0, ...columns.map(each => widthOf(each)))) + 8;
  const room = (width ?? parent.clientWidth ?? 600) - left - 4;
  const cell = Math.max(least, Math.min(most, Math.floor(room / Math.max(1, wide)))), line = tall ?? Math.max(cell, 9);
  const box = element("div", element("div", parent, "", { class: "scroll" }), "", {
    class: "matrix", tabindex: 0, role: "application", "aria-label": label, "data-key": `matrix ${label}`,
    style: `width: ${left + wide * cell + 4}px; height: ${top + high * line + 4}px`,
  });
  const canvas = element("canvas", box, "", {
    style: `left: ${left}px; top: ${top}px; width: ${wide * cell}px; height: ${high * line}px`, "aria-hidden": "true",
  });
  paint(canvas, values, high, wide, color);
  const drawn = shape("svg", box, { width: left + wide * cell + 4, height: top + high * line + 4, "aria-hidden": "true" });
  const band = shape("rect", drawn, { class: "band", width: 0, height: line });
  const spot = shape("rect", drawn, { class: "cell", width: 0, height: line });
  const every = Math.ceil(13 / cell), everyRow = Math.ceil(13 / line);
  const names = rows.map((name, i) => (i % everyRow ? null : titled(drawn, { x: left - 5, y: top + i * line + line / 2 + 4, "text-anchor": "end" }, name, 104)));
  const heads = columns.map((name, j) => (j % every ? null : titled(drawn, {
    transform: `translate(${left + j * cell + cell / 2 + 4} ${top - 5}) rotate(-90)`,
  }, name, 94)));
  let at = null;

  function mark(row, column, scroll = false) {
    names.forEach((each, i) => each?.classList.toggle("chosen", i === row));
    heads.forEach((each, j) => each?.classList.toggle("chosen", j === column));
    const there = row !== null && row !== undefined && row >= 0 && row < high;
    for (const [name, value] of Object.entries({ x: left, y: top + row * line, width: there ? wide * cell : 0 })) band.setAttribute(name, there ? value : 0);
    const both = there && column !== null && column !== undefined && column >= 0;
    for (const [name, value] of Object.entries({ x: left + column * cell, y: top + row * line, width: both ? cell : 0 })) spot.setAttribute(name, both ? value : 0);
    if (scroll && both) box.parentElement.scrollLeft = Math.max(0, left + column * cell - box.parentElement.clientWidth / 2);
  }

  function under(event) {
    const frame = box.getBoundingClientRect();
    const row = Math.floor((event.clientY - frame.top - top) / line), column = Math.floor((event.clientX - frame.left - left) / cell);
    return row >= 0 && row < high && column >= 0 && column < wide ? [row, column] : null;
  }

  function go(row, column, scroll = false) {
    at = [row, column];
    mark(row, column, scroll);
    tell?.(row, column);
  }
  box.addEventListener("pointermove", event => { const found = under(event); if (found) go(...found); });
  box.addEventListener("click", event => { const found = under(event); if (found) lock?.(...found); });
  box.addEventListener("keydown", event => {
    const move = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] }[event.key];
    if (move && !event.altKey && !event.ctrlKey && !event.metaKey) {
      const [row, column] = at ?? [0, -move[1]];
      go(Math.min(high - 1, Math.max(0, row + move[0])), Math.min(wide - 1, Math.max(0, column + move[1])), true);
    } else if (event.key === "Enter" && at) lock?.(...at);
    else return;
    event.preventDefault();
    event.stopPropagation();
  });
  return { mark, box, cell };
}

function titled(parent, attributes, name, most) {
  const made = shape("text", parent, attributes, cut(name, most));
  shape("title", made, {}, name);
  return made;
}

/** The same numbers as a table that can be read and copied. */
export function table(parent, { values, rows, columns, label, digits = 4, shade }) {
  const made = element("table", element("div", parent, "", { class: "scroll" }), "", { "aria-label": label });
  const top = element("tr", element("thead", made));
  element("td", top);
  for (const name of columns) element("th", top, name, { scope: "col" });
  const body = element("tbody", made);
  rows.forEach((name, i) => {
    const line = element("tr", body);
    element("th", line, name, { scope: "row" });
    columns.forEach((_, j) => {
      const value = values[i * columns.length + j], cell = element("td", line, value === -Infinity ? "−∞" : value.toFixed(digits), { "data-cell": i * columns.length + j });
      if (!shade) return;
      const color = shade(value);
      Object.assign(cell.style, { background: css(color), color: inkOn(color) });
    });
  });
  return made;
}
