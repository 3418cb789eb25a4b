// What was measured: the tables of RESULTS.md, with a filter.

import { element } from "#dom";
import { ask } from "#serve/api";

let found = null;

export const results = {
  id: "results",
  needs: () => true,
  draw(root, shell) {
    const said = shell.words.results;
    element("p", root, said.help, { class: "quiet" });
    const label = element("label", element("div", root, "", { class: "row" }), `${said.filter} `, { class: "quiet" });
    const input = element("input", label, "", { type: "search", id: "filter", "data-key": "filter" }), box = element("div", root, "", { id: "results" });
    const draw = () => fill(box, said, input.value);
    input.addEventListener("input", draw);
    if (found) draw();
    else ask("/api/results").then(answer => { found = answer.sections; draw(); }, error => shell.fail(error));
  },
};

function fill(box, said, wanted) {
  const parts = wanted.toLowerCase().split(/\s+/).filter(Boolean);
  box.replaceChildren();
  if (!found.length) element("p", box, said.none);
  for (const { title, head, rows } of found) {
    const shown = rows.filter(row => parts.every(part => `${title} ${row.join(" ")}`.toLowerCase().includes(part)));
    if (!shown.length) continue;
    element("h2", box, title);
    const table = element("table", element("div", box, "", { class: "scroll" }), "", { class: "texts" });
    const top = element("tr", element("thead", table));
    for (const name of head) element("th", top, name, { scope: "col" });
    const body = element("tbody", table);
    for (const row of shown) {
      const line = element("tr", body);
      for (const cell of row) element("td", line, cell);
    }
  }
}
