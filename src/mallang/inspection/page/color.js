// Colors of weights: cividis, which reads the same to color-blind eyes; nothing is the color of the page.

const DARK = [[22, 22, 26], [0, 34, 78], [53, 69, 108], [102, 105, 112], [148, 142, 119], [200, 184, 102], [254, 232, 56]];
const LIGHT = [[255, 255, 255], [253, 240, 170], [200, 184, 102], [148, 142, 119], [102, 105, 112], [53, 69, 108], [0, 34, 78]];
const SIGNED = { light: [[178, 90, 20], [255, 255, 255], [20, 90, 160]], dark: [[240, 150, 70], [22, 22, 26], [86, 180, 233]] };

export const isDark = () => document.documentElement.dataset.theme === "dark";

function between(stops, share) {
  const place = Math.min(Math.max(share, 0), 1) * (stops.length - 1), lower = Math.min(Math.floor(place), stops.length - 2);
  return stops[lower].map((from, i) => Math.round(from + (stops[lower + 1][i] - from) * (place - lower)));
}

/** The color of a weight from 0 to 1; the square root brings out small ones. */
export function weightColor(weight, root = true) {
  return between(isDark() ? DARK : LIGHT, root ? Math.sqrt(Math.max(weight, 0)) : weight);
}

/** The color of a value from −1 to 1: orange below zero, blue above it. */
export function signedColor(value) {
  return between(SIGNED[isDark() ? "dark" : "light"], (value + 1) / 2);
}

export const css = ([red, green, blue]) => `rgb(${red} ${green} ${blue})`;

/** Black or white, whichever reads better on a color. */
export const inkOn = ([red, green, blue]) => (0.299 * red + 0.587 * green + 0.114 * blue > 140 ? "#111" : "#fff");

/** Paint a table of numbers, a pixel each. */
export function paint(canvas, values, rows, columns, color) {
  [canvas.width, canvas.height] = [columns, rows];
  const context = canvas.getContext("2d"), image = context.createImageData(columns, rows);
  for (let i = 0; i < rows * columns; i++) {
    const [red, green, blue] = color(values[i]);
    image.data[4 * i] = red;
    image.data[4 * i + 1] = green;
    image.data[4 * i + 2] = blue;
    image.data[4 * i + 3] = 255;
  }
  context.putImageData(image, 0, 0);
}

/** The legend of a scale of colors. */
export function legend(parent, element, low, high, color) {
  const made = element("span", parent, "", { class: "legend quiet" });
  element("span", made, low);
  paint(element("canvas", made, "", { "aria-hidden": "true" }), Array.from({ length: 60 }, (_, i) => i / 59), 1, 60, color);
  element("span", made, high);
  return made;
}

/** Colors of families and runs (Okabe and Ito), all of which reach 3:1 on the page. */
export const LINES = () => (isDark() ? ["#56b4e9", "#e69f00", "#00c08b", "#e58fc1"] : ["#0072b2", "#d55e00", "#00805c", "#b0578c"]);
