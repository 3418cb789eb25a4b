// The form of a verb, made from the schema of its request: what the server checks is what the form offers.

import { element } from "#dom";

/** Fields that hold what is asked about; all others are options. */
const MAIN = ["texts", "prompts", "pairs", "questions", "contexts", "question", "choices", "images", "entity", "relation", "words"];
const LINES = ["texts", "prompts", "words", "questions"];

/** The fields of a verb: [name, schema], those of its items first. */
export function fieldsOf(document_, run, verb) {
  const { schema } = document_.paths[`/api/${verb}`].post.requestBody.content["application/json"];
  const { properties } = document_.components.schemas[schema.$ref.split("/").at(-1)], paired = run.reads_pairs.includes(verb);
  const all = Object.entries(properties).filter(([name]) => name !== "run" && !("texts" in properties && "pairs" in properties && name === (paired ? "texts" : "pairs")));
  const isMain = ([name, own]) => MAIN.includes(name) && own.type !== "boolean";
  return { main: all.filter(isMain).sort(([a], [b]) => MAIN.indexOf(a) - MAIN.indexOf(b)), options: all.filter(field => !isMain(field) && field[0] !== "stream") };
}

/** Draw the fields of the items; `read` of each gives its value. */
export function drawMain(root, fields, said, text, oninput) {
  return fields.map(([name], place) => {
    const label = element("label", root, said.fields[name] ?? name, { class: "quiet" }), attributes = { "data-key": `field-${name}`, id: `field-${name}` };
    if (name === "images") {
      const input = element("input", label, "", { type: "file", accept: "image/*", multiple: true, ...attributes });
      return { name, read: () => Promise.all([...input.files].map(asAddress)) };
    }
    if (name === "pairs") {
      const boxes = [0, 1].map(side => element("textarea", label, "", { rows: 2, "data-key": `field-pairs-${side}`, id: side ? "field-pairs-1" : "field-pairs" }));
      return { name, read: () => [boxes.map(box => box.value)] };
    }
    const isShort = name === "entity" || name === "relation";
    const input = element(isShort ? "input" : "textarea", label, "", { ...(isShort ? { type: "text" } : { rows: name === "contexts" ? 5 : 2 }), ...attributes, title: LINES.includes(name) ? said.lines : "" });
    if (!place) {
      input.value = text;
      input.addEventListener("input", () => oninput(input.value));
    }
    return { name, read: () => (LINES.includes(name) ? linesOf(input.value) : name === "choices" ? split(input.value) : input.value) };
  });
}

/** Options as the address keeps them, and back: beam=3&nbest=2. */
export const readOptions = text => Object.fromEntries(new URLSearchParams(text ?? ""));
export function writeOptions(chosen) {
  return new URLSearchParams(Object.entries(chosen).filter(([, value]) => value !== "" && value !== false)).toString() || null;
}

/** Draw the options; the values that were given are read by `read`, and one left empty is that of the recipe. */
export function drawOptions(root, fields, run, said, chosen, onchange = () => {}) {
  return fields.map(([name, schema]) => {
    const own = [schema, ...(schema.anyOf ?? [])].find(each => each.type && each.type !== "null" && !(each.type === "array" && schema.anyOf?.length > 2)) ?? { type: "string" };
    const usual = run.settings[name] ?? schema.default, label = element("label", root, `${name}`, { title: schema.description ?? "", class: own.type === "boolean" ? "check" : "" });
    const attributes = { id: `option-${name}`, "data-key": `option-${name}`, onchange: () => { chosen[name] = own.type === "boolean" ? input.checked : input.value; onchange(); } };
    let input;
    if (own.type === "boolean") {
      input = element("input", label, "", { type: "checkbox", ...attributes });
      input.checked = name in chosen ? String(chosen[name]) === "true" : schema.default ?? false;
      return { name, read: () => (input.checked === (schema.default ?? false) ? undefined : input.checked) };
    }
    if (own.enum) {
      input = element("select", label, "", attributes);
      for (const value of ["", ...own.enum]) element("option", input, value || (usual ? said.recipe(usual) : ""), { value });
    } else {
      const isNumber = own.type === "integer" || own.type === "number";
      input = element("input", label, "", { type: isNumber ? "number" : "text", step: own.type === "number" ? "any" : "1", placeholder: usual === undefined || usual === null || usual === "" ? "" : said.recipe(usual), ...attributes });
    }
    input.value = chosen[name] ?? "";
    const value = () => (own.type === "array" || (schema.anyOf ?? []).some(each => each.type === "array") ? split(input.value, ",") : own.type === "integer" || own.type === "number" ? Number(input.value) : input.value);
    return { name, read: () => (input.value.trim() === "" ? undefined : value()) };
  });
}

const split = (text, by = "\n") => text.split(by).map(part => part.trim()).filter(Boolean);

/** The lines of a text; nothing at all is one empty text, which a language model can continue. */
function linesOf(text) {
  const lines = split(text);
  return lines.length === 1 ? lines[0] : lines.length ? lines : "";
}

export function asAddress(file) {
  return new Promise((done, failed) => {
    const reader = new FileReader();
    Object.assign(reader, { onload: () => done(reader.result), onerror: () => failed(reader.error) });
    reader.readAsDataURL(file);
  });
}
