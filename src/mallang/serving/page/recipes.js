// The recipes that come with Mallang, what each should reach, and what was measured.

import { element } from "#dom";
import { ask } from "#serve/api";

let found = null;

export const recipes = {
  id: "recipes",
  needs: () => true,
  draw(root, shell) {
    const said = shell.words.recipes;
    element("p", root, said.help, { class: "quiet" });
    const label = element("label", element("div", root, "", { class: "row" }), `${said.filter} `, { class: "quiet" });
    const input = element("input", label, "", { type: "search", id: "filter", "data-key": "filter" }), count = element("p", root, "", { class: "quiet", id: "count" });
    const table = element("table", element("div", root, "", { class: "scroll" }), "", { id: "recipes", class: "texts" });
    const draw = () => fill(table, count, said, input.value);
    input.addEventListener("input", draw);
    if (found) draw();
    else ask("/api/recipes").then(answer => { found = answer.recipes; draw(); }, error => shell.fail(error));
  },
};

function fill(table, count, said, wanted) {
  if (!found) return;
  const parts = wanted.toLowerCase().split(/\s+/).filter(Boolean), shown = found.filter(each => parts.every(part => JSON.stringify(Object.values(each)).toLowerCase().includes(part)));
  count.textContent = said.count(shown.length, found.length);
  table.replaceChildren();
  const head = element("tr", element("thead", table));
  for (const name of said.columns) element("th", head, name, { scope: "col" });
  const body = element("tbody", table);
  for (const each of shown) {
    const row = element("tr", body);
    for (const name of ["name", "system", "corpus", "reach", "measured"]) element("td", row, each[name], name === "name" ? { title: each.paper } : {});
  }
}
