// The views of `mallang inspect` on one's own text: of one run, or of two that are compared.

import { open } from "#app";
import { element } from "#dom";
import { unpack } from "#payload";
import { ask } from "#serve/api";

const PAUSE = 400;
let page = null, place = null, waiting = null, asked = null, shownFor = null;

export const inside = {
  id: "inside",
  needs: shell => shell.runs.length > 0,
  draw(root, shell) {
    const said = shell.words.inside;
    shell.drawRuns(root, shell.runs);
    const form = element("form", root, "", { onsubmit: event => { event.preventDefault(); shell.read(input.value); show(shell); } });
    element("label", form, said.text, { for: "inside-text", class: "quiet" });
    const input = element("textarea", form, "", { id: "inside-text", rows: 2, maxlength: 2000, spellcheck: "false", "data-key": "inside-text", placeholder: said.help });
    input.value = shell.text;
    input.addEventListener("input", () => {
      shell.read(input.value);
      clearTimeout(waiting);
      waiting = setTimeout(() => show(shell), PAUSE);
    });
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

const keyOf = shell => JSON.stringify([shell.run.name, shell.other?.name, shell.text]);

/** Ask every chosen run what it does with the text, and draw it. */
async function show(shell) {
  asked?.abort();
  asked = new AbortController();
  const key = keyOf(shell), { signal } = asked, runs = [shell.run, shell.other].filter(Boolean), text = shell.text.trim() || null;
  place.setAttribute("aria-busy", "true");
  try {
    const found = await Promise.all(runs.map(run => inspect(run, text, signal, runs.length === 1)));
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
async function inspect(run, text, signal, isAlone) {
  try {
    const { results: [{ data, numbers }] } = await ask("/api/inspect", { run: run.name, ...(text ? { text } : {}) }, signal);
    return unpack(JSON.stringify(data), numbers);
  } catch (error) {
    if (isAlone || error.status !== 400) throw error;
    const shown = { input: text, output: "", score: null, problem: error.message };
    return { runs: [{ name: run.name, model: run.model, task: run.task, parameters: run.parameters, curves: {}, positions: null, mixes: [], texts: [shown] }] };
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
