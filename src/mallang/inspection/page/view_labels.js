// The labels of a text, the tag of every word, the answer in its context, and the candidates of gaps and questions.

import { css, weightColor } from "#color";
import { element } from "#dom";

export const labels = {
  id: "labels",
  needs: page => Boolean(page.shown?.labels || page.shown?.tags || page.shown?.candidates || page.shown?.roles || page.shown?.clusters),
  draw(root, page) {
    const said = page.words.labels, { labels: found, tags, answer, candidates, roles, clusters } = page.shown;
    if (found) {
      element("p", root, said.help, { class: "quiet" });
      const bars = element("div", root, "", { class: "bars", id: "labels" });
      found.names.map((name, i) => [found.probabilities[i], name]).sort((a, b) => b[0] - a[0]).forEach(([share, name], i) => {
        const bar = element("div", bars, "", { class: `bar ${i ? "" : "taken"}`, "data-share": share });
        element("b", bar, name, { title: name });
        element("i", bar, "", { style: `width: ${(100 * share).toFixed(2)}%` });
        element("u", bar, `${(100 * share).toFixed(2)} %`);
      });
    }
    if (tags) drawTags(root, page, tags);
    if (answer) drawAnswer(root, page, answer);
    if (candidates) drawCandidates(root, page, candidates);
    if (roles) drawRoles(root, page, roles);
    if (clusters) drawClusters(root, page, clusters);
  },
};

function drawAnswer(root, page, { question, context, start, end }) {
  element("p", root, page.words.labels.answer, { class: "quiet" });
  element("p", root, question);
  const text = element("p", root, "", { id: "context" });
  if (start === null) text.append(context);
  else {
    const letters = [...context];  // places are counted in characters, not in halves of them
    text.append(letters.slice(0, start).join(""));
    element("mark", text, letters.slice(start, end).join(""), { class: "answer" });
    text.append(letters.slice(end).join(""));
  }
}

/** A line per predicate: who does what to whom. */
function drawRoles(root, page, roles) {
  const said = page.words.labels;
  element("p", root, roles.length ? said.roles : said.noRoles, { class: "quiet" });
  for (const parts of roles) {
    const line = element("p", root, "", { class: "roles" });
    for (const { text, role, confidence } of parts) {
      if (!role) {
        line.append(text);
        continue;
      }
      const told = `${text}: ${role}, ${(100 * confidence).toFixed(2)} %`, mark = element("mark", line, text, { class: role === "V" ? "verb" : "", tabindex: 0, title: told, "data-role": role, onfocus: () => page.say(told), onmouseenter: () => page.say(told) });
      element("sub", mark, role);
    }
  }
}

/** The mentions of each thing that a text speaks of more than once. */
function drawClusters(root, page, clusters) {
  element("p", root, clusters.length ? page.words.labels.clusters : page.words.labels.noClusters, { class: "quiet" });
  const list = element("ol", root, "", { id: "clusters" });
  for (const names of clusters) element("li", list, names.join(" = "));
}

function drawCandidates(root, page, parts) {
  const said = page.words.labels;
  for (const { title, names, shares, kind } of parts) {
    element("p", root, said.kinds[kind], { class: "quiet" });
    if (title) element("h3", root, title);
    const bars = element("div", root, "", { class: "bars wide candidates" });
    const [low, high] = kind === "score" ? [Math.min(...shares) - 1e-9, Math.max(...shares)] : [0, 1];
    names.forEach((name, i) => {
      const bar = element("div", bars, "", { class: `bar ${i ? "" : "taken"}`, "data-share": shares[i] });
      element("b", bar, name, { title: name });
      element("i", bar, "", { style: `width: ${(100 * Math.max(0, Math.min(1, (shares[i] - low) / (high - low || 1)))).toFixed(2)}%` });
      element("u", bar, kind === "probability" ? `${(100 * shares[i]).toFixed(2)} %` : shares[i].toFixed(4));
    });
  }
}

function drawTags(root, page, { words, tags, probabilities }) {
  element("p", root, page.words.labels.tags, { class: "quiet" });
  const row = element("div", root, "", { class: "tokens", id: "tags" });
  words.forEach((word, i) => {
    const share = probabilities.at(i), told = `${word}: ${tags[i]}, ${(100 * share).toFixed(2)} %`;
    const made = element("span", row, "", {
      class: "tagged", tabindex: 0, style: `border-bottom-color: ${css(weightColor(1 - share, false))}`, "data-share": share,
      onmouseenter: () => page.say(told), onfocus: () => page.say(told),
    });
    element("span", made, word);
    element("small", made, tags[i]);
  });
}
