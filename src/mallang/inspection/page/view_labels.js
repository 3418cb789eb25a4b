// The labels of a text with their probabilities, or the tag of every word.

import { css, weightColor } from "#color";
import { element } from "#dom";

export const labels = {
  id: "labels",
  needs: page => Boolean(page.shown?.labels || page.shown?.tags),
  draw(root, page) {
    const said = page.words.labels, { labels: found, tags } = page.shown;
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
  },
};

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
