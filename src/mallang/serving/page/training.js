// Training runs while they train: the curves are asked for again every few seconds.

import { element } from "#dom";
import { training as view } from "#view_training";
import { WORDS } from "#words";
import { ask } from "#serve/api";

const EVERY = 2000;
let timer = null, chosen = new Set(), listed = [], curves = new Map();

export const training = {
  id: "training",
  needs: () => true,
  draw(root, shell) {
    const parts = { list: element("div", root), chart: element("div", root, "", { id: "training-curves" }) };
    drawAll(parts, shell);
    clearTimeout(timer);
    refresh(parts, shell, true);
  },
  leave: () => clearTimeout(timer),
};

async function refresh(parts, shell, isFirst = false) {
  try {
    const before = JSON.stringify([listed, [...chosen]]);
    listed = (await ask("/api/training")).runs;
    if (!chosen.size && listed.length) chosen.add(listed[0].name);
    let grown = false;
    for (const { name, changed } of listed.filter(run => chosen.has(run.name))) {
      if (curves.get(name)?.changed === changed) continue;
      curves.set(name, await ask(`/api/training/${encodeURIComponent(name)}`));
      grown = true;
    }
    if (shell.tab !== training || !parts.list.isConnected) return;
    if (isFirst || grown || before !== JSON.stringify([listed, [...chosen]])) drawAll(parts, shell);
  } catch (error) {
    if (parts.list.isConnected) shell.fail(error);
  }
  if (parts.list.isConnected) timer = setTimeout(() => refresh(parts, shell), EVERY);
}

function drawAll(parts, shell) {
  const said = shell.words.training, { list, chart } = parts;
  list.replaceChildren();
  element("p", list, listed.length ? said.help : said.none, { class: "quiet" });
  const row = element("div", list, "", { class: "row", id: "training-runs" });
  for (const { name, status, model, changed } of listed) {
    const when = new Date(1000 * changed).toLocaleTimeString(shell.state.lang);
    element("button", row, `${name} · ${status || "?"}`, {
      type: "button", class: "chip", "aria-pressed": String(chosen.has(name)), "data-key": `training ${name}`, title: `${model} ${when}`,
      onclick: () => { if (!chosen.delete(name)) chosen.add(name); shell.draw(); },
    });
  }
  const runs = listed.filter(run => chosen.has(run.name) && curves.has(run.name)).map(({ name }) => ({ name, curves: asTables(curves.get(name).curves) }));
  chart.replaceChildren();
  for (const run of listed) if (curves.get(run.name)?.problem && chosen.has(run.name)) element("p", chart, `${run.name}: ${said.problem}: ${curves.get(run.name).problem}`, { class: "problem" });
  const page = {
    data: { runs }, state: shell.state, words: WORDS[shell.state.lang] ?? WORDS.en, say: text => shell.say(text),
    set: changes => { shell.keep(changes); drawAll(parts, shell); },
  };
  if (view.needs(page)) view.draw(chart, page);
}

/** Lists of steps and values as the view reads them. */
function asTables(kinds) {
  const table = ([steps, values]) => ({ at: row => ({ values: row ? values : steps }) });
  return Object.fromEntries(Object.entries(kinds).map(([kind, metrics]) => [kind, Object.fromEntries(Object.entries(metrics).map(([name, found]) => [name, table(found)]))]));
}
