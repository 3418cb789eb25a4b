// What a classifier that pools by attention attends to: words shaded by their weights, a bar for every sentence.

import { css, inkOn, weightColor } from "#color";
import { choice, element } from "#dom";

export const highlights = {
  id: "highlights",
  needs: page => Boolean(page.shown?.highlights?.length),
  draw(root, page) {
    const said = page.words.highlights, views = page.shown.highlights, view = views[page.state.part] ?? views[0];
    element("p", root, said.help, { class: "quiet" });
    const name = each => (each.name === "mean" ? page.words.mean : each.name);
    if (views.length > 1) choice(root, said.view, views.map((each, i) => [i, name(each)]), views.indexOf(view), value => page.set({ part: Number(value) })).id = "part";
    const shade = (sentence, weight) => Math.sqrt(sentence.weight ?? 1) * weight;
    const darkest = Math.max(1e-9, ...view.sentences.flatMap(each => Array.from(each.weights.values, weight => shade(each, weight))));
    const box = element("div", root, "", { id: "highlights" });
    for (const sentence of view.sentences) drawSentence(box, page, sentence, weight => shade(sentence, weight) / darkest);
  },
};

function drawSentence(box, page, sentence, shade) {
  const said = page.words.highlights, line = element("div", box, "", { class: "sentence" });
  if (sentence.weight !== null) {
    const told = `${(100 * sentence.weight).toFixed(1)} %`;
    element("i", element("span", line, "", { class: "weight", title: told, role: "img", "aria-label": told, "data-weight": sentence.weight }), "", { style: `width: ${100 * sentence.weight}%` });
  }
  const text = element("p", line);
  sentence.pieces.forEach((piece, i) => {
    if (sentence.spaced[i]) text.append(" ");
    const color = weightColor(shade(sentence.weights.at(i)), false), told = said.told(piece, sentence.weights.at(i).toFixed(4));
    element("mark", text, piece, {
      style: `background: ${css(color)}; color: ${inkOn(color)}`, title: told, tabindex: 0, "data-weight": sentence.weights.at(i),
      onmouseenter: () => page.say(told), onfocus: () => page.say(told),
    });
  });
}
