// An image, and the same once for every word of its caption: bright where the word attended to it.

import { element } from "#dom";

const DARKEST = 0.15;

export const image = {
  id: "image",
  needs: page => Boolean(page.shown?.image),
  draw(root, page) {
    const said = page.words.image, { pixels, words, weights } = page.shown.image;
    element("p", root, said.help, { class: "quiet" });
    const box = element("div", root, "", { class: "images", id: "images" });
    drawImage(box, page, pixels, null, said.whole);
    words.forEach((word, i) => drawImage(box, page, pixels, weights.at(i), word));
  },
};

function drawImage(box, page, pixels, weights, name) {
  const [high, wide] = pixels.shape, figure = element("figure", box), canvas = element("canvas", figure, "", { role: "img", "aria-label": name, tabindex: 0 });
  [canvas.width, canvas.height] = [wide, high];
  const context = canvas.getContext("2d"), drawn = context.createImageData(wide, high);
  const most = weights ? Math.max(...weights.values, 1e-9) : 1, [rows, columns] = weights?.shape ?? [1, 1], [tall, broad] = [Math.ceil(high / rows), Math.ceil(wide / columns)];
  for (let y = 0; y < high; y++) for (let x = 0; x < wide; x++) {
    const share = weights ? weights.at(Math.floor(y / tall), Math.floor(x / broad)) / most : 1, bright = DARKEST + (1 - DARKEST) * share;
    for (let c = 0; c < 3; c++) drawn.data[4 * (y * wide + x) + c] = Math.round(pixels.at(y, x, c) * bright);
    drawn.data[4 * (y * wide + x) + 3] = 255;
  }
  context.putImageData(drawn, 0, 0);
  element("figcaption", figure, name);
  if (!weights) return;
  const strongest = () => page.say(`${name}: ${page.words.image.told(most.toFixed(6))}`);
  canvas.addEventListener("pointerenter", strongest);
  canvas.addEventListener("focus", strongest);
}
