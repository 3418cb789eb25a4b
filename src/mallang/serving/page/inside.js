// The views of `mallang inspect` on one's own text: of one run, or of two that are compared.

import { open } from "#app";
import { check, element } from "#dom";
import { unpack } from "#payload";
import { ask } from "#serve/api";
import { asAddress, drawOptions, fieldsOf, readOptions, writeOptions } from "#serve/form";

const PAUSE = 400;
/** Options of what is shown; all others are those of a search, which some runs have. */
const OWN = ["layers", "head", "words", "numbers", "start"];
let schema = null, page = null, place = null, waiting = null, asked = null, shownFor = null, image = null;

export const inside = {
  id: "inside",
  needs: shell => shell.runs.length > 0,
  draw(root, shell) {
    if (!schema) {
      ask("/openapi.json").then(found => { schema = found; shell.draw(); }, error => shell.fail(error));
      return;
    }
    shell.drawRuns(root, shell.runs);
    const form = element("form", root, "", { onsubmit: event => { event.preventDefault(); show(shell); } });
    if (isSeeing(shell)) drawImage(form, shell);
    else drawText(form, shell);
    drawChoices(form, shell);
    place ??= element("div", null, "", { id: "inspected" });
    root.append(place);
    const key = keyOf(shell);
    if (page && shownFor === key) page.draw(); // in another language, or after another tab
    else show(shell);
  },
  leave() {
    clearTimeout(waiting);
    asked?.abort();
  },
};

const isSeeing = shell => shell.run.verbs.includes("caption");

function drawImage(form, shell) {
  const label = element("label", form, `${shell.words.inside.image} `, { class: "quiet" });
  element("input", label, "", { type: "file", accept: "image/*", id: "inside-image", "data-key": "inside-image", onchange: async event => {
    const [file] = event.target.files;
    image = file ? await asAddress(file) : null;
    show(shell);
  } });
}

function drawText(form, shell) {
  const said = shell.words.inside;
  element("label", form, said.text, { for: "inside-text", class: "quiet" });
  const input = element("textarea", form, "", { id: "inside-text", rows: 2, maxlength: 2000, spellcheck: "false", "data-key": "inside-text", placeholder: said.help });
  input.value = shell.text;
  input.addEventListener("input", () => {
    shell.read(input.value);
    clearTimeout(waiting);
    waiting = setTimeout(() => show(shell), PAUSE);
  });
}

/** The options that a run has: one that does not search has none of a search. */
const choices = run => fieldsOf(schema, run, "inspect").options.filter(([name]) => name !== "text" && (OWN.includes(name) || run.method));

/** What is shown, and how the run searches: kept in the address. */
function drawChoices(form, shell) {
  const chosen = readOptions(shell.state.look), details = element("details", form);
  details.open = Boolean(shell.state.look || shell.state.lines);
  element("summary", details, shell.words.options);
  const box = element("div", details, "", { class: "options" });
  if (!isSeeing(shell)) check(box, shell.words.inside.several, shell.state.lines === 1, value => { shell.keep({ lines: value ? 1 : 0 }); show(shell); }).id = "option-lines";
  drawOptions(box, choices(shell.run), shell.run, shell.words, chosen, () => { shell.keep({ look: writeOptions(chosen) }); show(shell); });
}

/** The options as the server takes them. */
function optionsOf(shell, run) {
  const holder = document.createElement("div"), read = drawOptions(holder, choices(run), run, shell.words, readOptions(shell.state.look)).map(field => [field.name, field.read()]);
  return Object.fromEntries(read.filter(([, value]) => value !== undefined));
}

function textOf(shell) {
  if (isSeeing(shell)) return image;
  if (shell.state.lines !== 1) return shell.text.trim() || null;
  const lines = shell.text.split("\n").map(line => line.trim()).filter(Boolean);
  return lines.length ? lines : null;
}

const keyOf = shell => JSON.stringify([shell.run.name, shell.other?.name, textOf(shell), shell.state.look]);

/** Ask every chosen run what it does with the text, and draw it. */
async function show(shell) {
  asked?.abort();
  asked = new AbortController();
  const key = keyOf(shell), { signal } = asked, runs = [shell.run, shell.other].filter(Boolean), text = textOf(shell);
  place.setAttribute("aria-busy", "true");
  try {
    const found = await Promise.all(runs.map(run => inspect(run, text, optionsOf(shell, run), signal, runs.length === 1)));
    if (signal.aborted) return;
    shell.say("");
    const data = { ...found[0], runs: found.flatMap(each => each.runs) };
    shownFor = key;
    if (page) {
      page.data = data;
      Object.assign(page.state, { run: 0, other: 1, text: 0, token: null, node: null });
      page.draw();
    } else begin(shell, data);
  } catch (error) {
    if (!signal.aborted) {
      shownFor = null;
      shell.fail(error);
    }
  } finally {
    if (!signal.aborted) place.removeAttribute("aria-busy");
  }
}

/** What a run does with a text; where two runs are compared, one that cannot read it says why. */
async function inspect(run, text, options, signal, isAlone) {
  try {
    const { results: [{ data, numbers }] } = await ask("/api/inspect", { run: run.name, ...(text ? { text, ...options } : {}) }, signal);
    return unpack(JSON.stringify(data), numbers);
  } catch (error) {
    if (isAlone || error.status !== 400) throw error;
    const shown = [text].flat().map(each => ({ input: each, output: "", score: null, problem: error.message }));
    return { runs: [{ name: run.name, model: run.model, task: run.task, parameters: run.parameters, curves: {}, positions: null, mixes: [], texts: shown }] };
  }
}

/** The page of `mallang inspect`, once: it shares the state of the address, and hears keys in this tab only. */
function begin(shell, data) {
  page = open(place, data);
  page.state = shell.state;
  const onKey = page.onKey.bind(page);
  page.onKey = event => { if (shell.tab === inside) onKey(event); };
  page.draw();
}
