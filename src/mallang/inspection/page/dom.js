// Making elements. All text is set as text, never as HTML.

const SVG = "http://www.w3.org/2000/svg";

/** A new element below a parent, with its text and its attributes; `on…` attributes are listeners. */
export function element(kind, parent, text = "", attributes = {}) {
  return fill(document.createElement(kind), parent, text, attributes);
}

/** A new element of SVG below a parent. */
export function shape(kind, parent, attributes = {}, text = "") {
  return fill(document.createElementNS(SVG, kind), parent, text, attributes);
}

function fill(made, parent, text, attributes) {
  if (text !== "") made.textContent = text;
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else if (name === "style") made.style.cssText = value; // a policy against inline styles forbids the attribute
    else if (value !== null && value !== undefined && value !== false) made.setAttribute(name, value === true ? "" : value);
  }
  if (parent) parent.append(made);
  return made;
}

/** A choice of one of several values: [[value, name], …]. */
export function choice(parent, label, options, value, onchange) {
  const made = element("label", parent, "", { class: "quiet" });
  made.append(`${label} `);
  const select = element("select", made, "", { onchange: () => onchange(select.value), "data-key": label });
  for (const [key, name] of options) element("option", select, name, { value: key });
  select.value = value;
  return select;
}

/** A check box. */
export function check(parent, label, value, onchange) {
  const made = element("label", parent, "", { class: "quiet" });
  const box = element("input", made, "", { type: "checkbox", onchange: () => onchange(box.checked), "data-key": label });
  box.checked = value;
  made.append(` ${label}`);
  return box;
}

/** A slider with its label and its value. */
export function slider(parent, label, { min, max, step, value, id, spell = String }, oninput) {
  element("label", parent, label, { for: id, class: "quiet" });
  const told = () => { output.textContent = spell(Number(input.value)); };
  const input = element("input", parent, "", { type: "range", min, max, step, id, "data-key": id });
  const output = element("output", parent, "", { class: "number", for: id });
  input.value = value;
  told();
  input.addEventListener("input", () => { told(); oninput(Number(input.value)); });
  return input;
}

/** The width of a text in pixels, roughly: Hangul and the like are twice as wide as Latin letters. */
export function widthOf(text, size = 13) {
  let sum = 0;
  for (const letter of text) sum += letter.codePointAt(0) > 0x1100 ? size * 0.98 : size * 0.58;
  return sum;
}

/** A text that is cut to a width. */
export function cut(text, most, size = 13) {
  if (widthOf(text, size) <= most) return text;
  const letters = [...text];
  while (letters.length > 1 && widthOf(letters.join("") + "…", size) > most) letters.pop();
  return `${letters.join("")}…`;
}
