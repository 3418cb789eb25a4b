// Every verb of the runs: a form, the answer as figures, and the request and answer as they were sent.

import { choice, element } from "#dom";
import { ask, events } from "#serve/api";
import { drawResult } from "#serve/answers";
import { drawMain, drawOptions, fieldsOf, readOptions, writeOptions } from "#serve/form";

let schema = null, running = null, last = null;

export const tryout = {
  id: "try",
  needs: shell => shell.runs.some(run => run.verbs.length),
  draw(root, shell) {
    if (!schema) {
      ask("/openapi.json").then(found => { schema = found; shell.draw(); }, error => shell.fail(error));
      return;
    }
    const said = shell.words;
    shell.drawRuns(root, shell.runs);
    const { run } = shell, verb = run.verbs.includes(shell.state.verb) ? shell.state.verb : run.verbs[0];
    choice(element("div", root, "", { class: "row" }), said.verb, run.verbs.map(each => [each, said.verbs[each] ?? each]), verb, value => shell.set({ verb: value })).id = "verb";
    const fields = fieldsOf(schema, run, verb), form = element("form", root, "", { id: "try-form" });
    const main = drawMain(form, fields.main, said, shell.text, text => shell.read(text));
    const details = element("details", form), chosen = readOptions(shell.state.opt);
    details.open = Object.values(chosen).some(value => value !== "" && value !== false);
    element("summary", details, said.options);
    const options = drawOptions(element("div", details, "", { class: "options" }), fields.options, run, said, chosen, () => shell.keep({ opt: writeOptions(chosen) }));
    const row = element("div", form, "", { class: "row" });
    element("button", row, said.send, { type: "submit", id: "send" });
    element("button", row, said.stop, { type: "button", id: "stop", onclick: () => running?.abort() });
    const answers = element("div", root, "", { id: "answers", class: "answers", "aria-live": "polite" });
    form.addEventListener("submit", async event => {
      event.preventDefault();
      const body = {};
      for (const field of [...main, ...options]) {
        const value = await field.read();
        if (value !== undefined) body[field.name] = value;
      }
      send(answers, shell, verb, body);
    });
    const key = `${run.name} ${shell.other?.name} ${verb}`;
    if (last?.key === key) last.draw(answers); // in another language
  },
  leave: () => running?.abort(),
};

/** Send the request to every chosen run that has the verb, and draw what comes. */
async function send(answers, shell, verb, body) {
  running?.abort();
  running = new AbortController();
  const { signal } = running, runs = [shell.run, shell.other].filter(run => run?.verbs.includes(verb)), found = [];
  answers.replaceChildren();
  shell.say(shell.words.working);
  await Promise.all(runs.map(async (run, i) => {
    const begun = performance.now(), asked = { run: run.name, ...body };
    try {
      const answer = canStream(run, verb, body) ? await streamed(answers, runs, run, asked, signal) : await ask(`/api/${verb}`, asked, signal);
      found[i] = { run, asked, answer, took: performance.now() - begun };
    } catch (error) {
      if (signal.aborted) return;
      found[i] = { run, asked, error, took: performance.now() - begun };
    }
  }));
  if (signal.aborted) {
    shell.say("");
    return;
  }
  last = { key: `${shell.run.name} ${shell.other?.name} ${verb}`, draw: root => drawAll(root, shell, verb, found) };
  if (answers.isConnected) last.draw(answers);
}

/** A language model that samples or takes the most probable token can send what it generates at once. */
function canStream(run, verb, body) {
  return verb === "generate" && (body.method ?? run.method) !== "beam" && !Array.isArray(body.prompts) && (body.nbest ?? 1) === 1;
}

async function streamed(answers, runs, run, asked, signal) {
  const box = element("section", answers);
  if (runs.length > 1) element("h2", box, run.name);
  const text = element("div", box, asked.prompts ?? "", { class: "big output growing" });
  for await (const event of events("/api/generate", asked, signal)) {
    if (event.results) return { run: run.name, results: event.results };
    text.textContent += event.text;
  }
  throw new Error("the stream ended early");
}

function drawAll(answers, shell, verb, found) {
  const said = shell.words;
  answers.replaceChildren();
  const failed = found.filter(each => each?.error);
  shell.say(failed.map(({ run, error }) => said.failed(error.status, found.length > 1 ? `${run.name}: ${error.message}` : error.message)).join(" "), failed.length > 0);
  for (const { run, asked, answer, took } of found.filter(each => each?.answer)) {
    const section = element("section", answers);
    if (found.length > 1) element("h2", section, run.name);
    answer.results.forEach((result, i) => drawResult(section, verb, result, said, Array.isArray(asked.contexts) ? asked.contexts[i] : asked.contexts));
    element("p", section, said.took(took.toFixed(0)), { class: "quiet" });
    const details = element("details", section);
    element("summary", details, said.http);
    element("pre", details, `POST ${location.origin}/api/${verb}\n${JSON.stringify(asked, null, 2)}`);
    element("pre", details, JSON.stringify(answer, null, 2));
  }
}
