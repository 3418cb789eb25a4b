// The curves of training and validation, of one run or of all runs on the page.

import { DASHES, chart, key } from "#chart";
import { LINES } from "#color";
import { check, choice, element } from "#dom";

export const training = {
  id: "training",
  needs: page => metricsOf(page).length > 0,
  draw(root, page) {
    const said = page.words.training, metrics = metricsOf(page), metric = metrics.includes(page.state.metric) ? page.state.metric : metrics[0];
    element("p", root, said.help, { class: "quiet" });
    const row = element("div", root, "", { class: "row" });
    choice(row, said.metric, metrics.map(each => [each, each]), metric, value => page.set({ metric: value })).id = "metric";
    check(row, said.log, page.state.log === 1, on => page.set({ log: on ? 1 : 0 })).id = "log";
    const lines = linesOf(page, metric);
    chart(root, {
      lines, label: metric, log: page.state.log === 1, xLabel: said.step, id: "curves",
      tell: (line, step, value) => page.say(said.told(line.name, step.toLocaleString(page.state.lang), Number(value.toPrecision(6)))),
    });
    key(root, lines);
  },
};

/** The metrics that any run has recorded; the loss first. */
function metricsOf(page) {
  const found = new Set(page.data.runs.flatMap(run => Object.values(run.curves ?? {}).flatMap(kind => Object.keys(kind))));
  return [...found].sort((a, b) => (b === "loss") - (a === "loss") || a.localeCompare(b));
}

/** A color per run, a dash per kind: training, validation. */
function linesOf(page, metric) {
  const said = page.words.training, { runs } = page.data;
  return runs.flatMap((run, i) => Object.entries(run.curves ?? {}).filter(([, kind]) => kind[metric]).map(([kind, values], j) => ({
    name: [runs.length > 1 ? run.name : "", said[kind] ?? kind].filter(Boolean).join(", "),
    x: values[metric].at(0).values, y: values[metric].at(1).values,
    color: LINES()[(runs.length > 1 ? i : j) % 4], dash: DASHES[(runs.length > 1 ? j : 0) % DASHES.length],
  })));
}
