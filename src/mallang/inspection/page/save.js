// The view as a picture or as data: all that it has drawn, below each other, as SVG or PNG; the numbers as JSON.

import { element } from "#dom";
import { Table } from "#payload";

const SVG = "http://www.w3.org/2000/svg";
const STYLES = ["fill", "stroke", "stroke-width", "stroke-dasharray", "opacity", "font-size", "font-weight", "font-family", "text-anchor", "visibility"];

/** Buttons that save the view. */
export function saving(root, page, view) {
  const row = element("div", root, "", { class: "row quiet", id: "save" });
  row.append(`${page.words.save} `);
  const button = (kind, onclick) => element("button", row, kind, { type: "button", "data-key": `save ${kind}`, id: `save-${kind.toLowerCase()}`, onclick });
  const name = `${page.run.name}-${page.view.id}`;
  if (view.querySelector("svg.drawn, .matrix, figure canvas")) {
    button("SVG", () => give(`${name}.svg`, new Blob([picture(view).text], { type: "image/svg+xml" })));
    button("PNG", async () => give(`${name}.png`, await raster(picture(view))));
  }
  button("JSON", () => give(`${name}.json`, new Blob([JSON.stringify(page.shown ?? page.run, plain)], { type: "application/json" })));
}

function give(name, blob) {
  const link = element("a", document.body, "", { href: URL.createObjectURL(blob), download: name });
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(link.href), 10000);
}

/** A table as nested lists; null where a number is infinite. */
function plain(_, value) {
  if (!(value instanceof Table)) return value;
  return value.shape.length === 1 ? Array.from(value.values, each => (Number.isFinite(each) ? each : null)) : Array.from({ length: value.length }, (_, i) => value.at(i));
}

/** All drawings of a view as one SVG. */
export function picture(view) {
  const made = document.createElementNS(SVG, "svg"), ground = getComputedStyle(document.body).backgroundColor;
  let [width, high] = [0, 8];
  for (const drawn of view.querySelectorAll("svg.drawn, .matrix > svg")) {
    const part = drawn.cloneNode(true), canvas = drawn.parentElement.querySelector(":scope > canvas");
    const [wide, tall] = [Number(drawn.getAttribute("width")), Number(drawn.getAttribute("height"))];
    inline(drawn, part);
    if (canvas) {
      const place = canvas.style, [x, y, width, height] = [place.left, place.top, place.width, place.height].map(parseFloat);
      part.prepend(imageOf(canvas, { x, y, width, height }));
    }
    part.setAttribute("y", high);
    made.append(part);
    [width, high] = [Math.max(width, wide), high + tall + 12];
  }
  for (const canvas of view.querySelectorAll("figure canvas")) {
    const side = 140, name = document.createElementNS(SVG, "text"), shown = imageOf(canvas, { x: 4, y: high, width: side, height: side });
    for (const [key, value] of Object.entries({ x: side + 14, y: high + side / 2, fill: getComputedStyle(document.body).color, "font-family": "sans-serif" })) name.setAttribute(key, value);
    name.textContent = canvas.getAttribute("aria-label");
    made.append(shown, name);
    [width, high] = [Math.max(width, 3 * side), high + side + 8];
  }
  const back = document.createElementNS(SVG, "rect");
  for (const [key, value] of Object.entries({ width: width + 8, height: high, fill: ground })) back.setAttribute(key, value);
  made.prepend(back);
  for (const [key, value] of Object.entries({ xmlns: SVG, width: width + 8, height: high, viewBox: `0 0 ${width + 8} ${high}` })) made.setAttribute(key, value);
  return { text: new XMLSerializer().serializeToString(made), width: width + 8, high };
}

function imageOf(canvas, where) {
  const shown = document.createElementNS(SVG, "image");
  const all = { href: canvas.toDataURL(), ...where, preserveAspectRatio: "none", style: "image-rendering: pixelated" };
  for (const [key, value] of Object.entries(all)) shown.setAttribute(key, value);
  return shown;
}

/** Write the styles that a page gives a drawing into the drawing. */
function inline(from, to) {
  const [all, copies] = [[from, ...from.querySelectorAll("*")], [to, ...to.querySelectorAll("*")]];
  all.forEach((each, i) => {
    const found = getComputedStyle(each);
    copies[i].style.cssText = STYLES.map(name => `${name}: ${found.getPropertyValue(name)}`).join("; "); // a policy against inline styles forbids the attribute
  });
}

async function raster({ text, width, high }) {
  const shown = new Image(), scale = 2, canvas = document.createElement("canvas");
  shown.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(text)}`;
  await shown.decode();
  [canvas.width, canvas.height] = [width * scale, high * scale];
  canvas.getContext("2d").drawImage(shown, 0, 0, canvas.width, canvas.height);
  return new Promise(done => { canvas.toBlob(done, "image/png"); });
}
