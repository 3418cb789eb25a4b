// Curves over a horizontal axis, with ticks; a point is told under the mouse or by arrow keys.

import { LINES } from "#color";
import { element, shape } from "#dom";

const HIGH = 260, LEFT = 58, BOTTOM = 26, TOP = 10, RIGHT = 12;
export const DASHES = ["", "6 3", "2 3", "8 3 2 3"];

/** Round values between two bounds. */
export function ticks(low, high, count = 5) {
  const rough = (high - low) / count || 1, power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].find(each => each * power >= rough) * power, found = [];
  for (let value = Math.ceil(low / step) * step; value <= high + step * 1e-9; value += step) found.push(Math.abs(value) < step * 1e-9 ? 0 : value);
  return found;
}

const spell = value => (Math.abs(value) >= 1e5 || (value !== 0 && Math.abs(value) < 1e-3) ? value.toExponential(1) : String(Number(value.toPrecision(4))));

/**
 * `lines` are {name, x, y, color, dash}, numbers in lists; `log` is a logarithmic vertical axis; `tell(line, i)` is
 * called for the point that is nearest to the mouse; `width` in pixels is that of the parent by default.
 */
export function chart(parent, { lines, label, log = false, xLabel = "", tell, names = null, id }) {
  const width = Math.min(760, Math.max(300, parent.clientWidth || 760));
  const usable = lines.map(line => ({ ...line, at: Array.from(line.x, (x, i) => [x, line.y[i]]).filter(([x, y]) => Number.isFinite(x) && Number.isFinite(y) && (!log || y > 0)) }));
  const all = usable.flatMap(line => line.at), scale = log ? Math.log10 : each => each;
  if (!all.length) return null;
  const bounds = axis => all.reduce(([low, high], point) => [Math.min(low, point[axis]), Math.max(high, point[axis])], [Infinity, -Infinity]);
  const [[left, right], [low, high]] = [bounds(0), bounds(1)], bottom = scale(low), span = scale(high) - bottom || 1;
  const x = value => LEFT + ((value - left) / (right - left || 1)) * (width - LEFT - RIGHT);
  const y = value => HIGH - BOTTOM - ((scale(value) - bottom) / span) * (HIGH - BOTTOM - TOP);
  const svg = shape("svg", element("div", parent, "", { class: "scroll" }), { class: "drawn chart", id, width, height: HIGH, viewBox: `0 0 ${width} ${HIGH}`, role: "img", tabindex: 0, "aria-label": label });
  for (const value of log ? powers(low, high) : ticks(low, high)) {
    shape("line", svg, { class: "grid", x1: LEFT, x2: width - RIGHT, y1: y(value), y2: y(value) });
    shape("text", svg, { class: "small", x: LEFT - 6, y: y(value) + 4, "text-anchor": "end" }, spell(value));
  }
  for (const value of names ? names.map((_, i) => i) : ticks(left, right, 6)) shape("text", svg, { class: "small", x: x(value), y: HIGH - 8, "text-anchor": "middle" }, names ? names[value] : spell(value));
  if (xLabel) shape("text", svg, { class: "small", x: width - RIGHT, y: HIGH - BOTTOM - 5, "text-anchor": "end" }, xLabel);
  usable.forEach((line, number) => shape("path", svg, {
    class: "curve", d: line.at.map(([a, b], i) => `${i ? "L" : "M"}${x(a).toFixed(1)} ${y(b).toFixed(1)}`).join(""), stroke: line.color ?? LINES()[number % 4], "stroke-dasharray": line.dash ?? "", "data-line": line.name,
  }));
  listen(svg, usable, { x, y, tell });
  return svg;
}

function powers(low, high) {
  const found = [];
  for (let power = Math.floor(Math.log10(low)); power <= Math.ceil(Math.log10(high)); power++) for (const digit of [1, 2, 5]) found.push(digit * 10 ** power);
  const inside = found.filter(value => value >= low && value <= high);
  return inside.length ? inside : [low, high];
}

function listen(svg, lines, { x, y, tell }) {
  if (!tell) return;
  const dot = shape("circle", svg, { r: 4, class: "dot", visibility: "hidden" });
  let at = [0, -1];
  const show = (number, i) => {
    const line = lines[number], [a, b] = line.at[i];
    at = [number, i];
    for (const [name, value] of Object.entries({ cx: x(a), cy: y(b), visibility: "visible" })) dot.setAttribute(name, value);
    tell(line, a, b);
  };
  svg.addEventListener("pointermove", event => {
    const frame = svg.getBoundingClientRect(), px = event.clientX - frame.left, py = event.clientY - frame.top;
    let best = null;
    lines.forEach((line, number) => line.at.forEach(([a, b], i) => {
      const far = (x(a) - px) ** 2 + (y(b) - py) ** 2;
      if (!best || far < best[0]) best = [far, number, i];
    }));
    if (best) show(best[1], best[2]);
  });
  svg.addEventListener("keydown", event => {
    const move = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] }[event.key];
    if (!move) return;
    const number = Math.min(lines.length - 1, Math.max(0, at[0] + move[0]));
    show(number, Math.min(lines[number].at.length - 1, Math.max(0, at[1] + move[1])));
    event.preventDefault();
    event.stopPropagation();
  });
}

/** The lines of a chart by color and dash. */
export function key(parent, lines) {
  const box = element("p", parent, "", { class: "key quiet" });
  lines.forEach((line, number) => {
    const one = element("span", box), svg = shape("svg", one, { width: 28, height: 10, "aria-hidden": "true" });
    shape("path", svg, { class: "curve", d: "M0 5H28", stroke: line.color ?? LINES()[number % 4], "stroke-dasharray": line.dash ?? "" });
    one.append(` ${line.name}`);
  });
}
