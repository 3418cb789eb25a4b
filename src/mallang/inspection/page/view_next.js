// The next token at every step with sliders for temperature, top-k and top-p, and the surprisal of every token.

import { css, weightColor } from "#color";
import { element, shape, slider, widthOf } from "#dom";
import { truncated } from "#sampling";

const SHOWN = 12;

export const next = {
  id: "next",
  needs: page => Boolean(page.shown?.next),
  draw(root, page) {
    const said = page.words.next, { next: found, prompt } = page.shown, step = chosenStep(page);
    element("p", root, said.help, { class: "quiet" });
    drawTokens(root, page, step);
    const columns = element("div", root, "", { class: "columns" }), left = element("section", columns), right = element("section", columns);
    element("h2", left, said.at(found.labels[step]), { id: "next-title" });
    const bars = element("div", left, "", { class: "bars", id: "bars" }), note = element("p", left, "", { class: "quiet number", id: "kept" });
    const redraw = () => drawBars(bars, note, page, step);
    const sliders = element("div", right, "", { class: "sliders", style: "margin-top: 1.5rem" }), { temperatures } = page.data;
    const change = changes => { page.keep(changes); redraw(); };
    const nearest = temperatures.reduce((a, b, i) => (Math.abs(b - page.state.temperature) < Math.abs(temperatures[a] - page.state.temperature) ? i : a), 0);
    slider(sliders, said.temperature, { id: "temperature", min: 0, max: temperatures.length - 1, step: 1, value: nearest, spell: i => temperatures[i].toFixed(2) }, i => change({ temperature: temperatures[i] }));
    slider(sliders, said.k, { id: "k", min: 0, max: found.ids.shape[1], step: 1, value: page.state.k }, k => change({ k }));
    slider(sliders, said.p, { id: "p", min: 0.05, max: 1, step: 0.01, value: page.state.p, spell: p => p.toFixed(2) }, p => change({ p }));
    redraw();
    element("h2", root, said.surprisal);
    if (prompt) element("p", root, said.prompt, { class: "quiet" });
    drawSurprisal(root, page, step);
  },
  onKey(event, page) {
    if (event.key !== "ArrowLeft" && event.key !== "ArrowRight") return false;
    const most = page.shown.next.labels.length - 1;
    page.set({ token: Math.min(most, Math.max(0, chosenStep(page) + (event.key === "ArrowRight" ? 1 : -1))) });
    return true;
  },
};

export const bitsOf = found => Array.from(found.label_log_probs.values, each => -each / Math.LN2);

function chosenStep(page) {
  const { next: found, prompt } = page.shown;
  return Math.min(found.labels.length - 1, page.state.token ?? prompt ?? 0);
}

function drawTokens(root, page, step) {
  const { next: found, prompt } = page.shown, row = element("div", root, "", { class: "tokens", id: "tokens" });
  found.labels.forEach((token, i) => {
    const share = Math.exp(found.label_log_probs.values[i]);
    element("button", row, token, {
      type: "button", class: `token${i < (prompt ?? 0) ? " given" : ""}`, "aria-pressed": String(i === step), title: `${(100 * share).toFixed(2)} %`, "data-key": `token ${i}`,
      style: `border-bottom-color: ${css(weightColor(1 - share, false))}`, onclick: () => page.set({ token: i }),
    });
  });
}

function drawBars(bars, note, page, step) {
  const said = page.words.next, { next: found } = page.shown, { temperature, k, p } = page.state;
  const place = page.data.temperatures.reduce((a, b, i, all) => (Math.abs(b - temperature) < Math.abs(all[a] - temperature) ? i : a), 0);
  const ids = found.ids.at(step).values, cut = truncated(found.log_probs.at(step).values, found.rest.at(step, place), found.others, { temperature: page.data.temperatures[place], k, p });
  const taken = ids.indexOf(found.label_ids[step]), rows = [...Array(Math.min(SHOWN, ids.length)).keys()];
  if (taken >= SHOWN) rows[SHOWN - 1] = taken;
  bars.replaceChildren();
  const line = (name, share, kind, full) => {
    const bar = element("div", bars, "", { class: `bar ${kind}`, "data-share": full });
    element("b", bar, name, { title: name });
    element("i", bar, "", { style: `width: ${(100 * share).toFixed(2)}%` });
    element("u", bar, `${(100 * share).toFixed(2)} %`);
  };
  for (const i of rows) line(found.names[ids[i]], cut.shares[i], `${cut.shares[i] > 0 ? "" : "cut"} ${i === taken ? "taken" : ""}`, cut.shares[i]);
  const shown = rows.reduce((sum, i) => sum + cut.shares[i], 0), count = found.others + ids.length - rows.length;
  if (count > 0) line(said.others(count), Math.max(0, 1 - shown), 1 - shown > 1e-9 ? "" : "cut", Math.max(0, 1 - shown));
  note.textContent = [cut.count === null ? "" : said.kept(cut.count, `${(100 * cut.mass).toFixed(2)} %`), cut.isExact ? "" : said.beyond].filter(Boolean).join(" ");
}

function drawSurprisal(root, page, step) {
  const said = page.words.next, { next: found, prompt } = page.shown, bits = bitsOf(found), own = bits.slice(prompt ?? 0);
  element("p", root, said.total(own.reduce((a, b) => a + b, 0).toFixed(2), (own.reduce((a, b) => a + b, 0) / Math.max(1, own.length)).toFixed(2)), { class: "quiet", id: "bits" });
  const wide = found.labels.map(token => Math.min(110, Math.max(34, widthOf(token) + 12))), high = 120, most = Math.max(1, ...bits.filter(Number.isFinite));
  const width = wide.reduce((a, b) => a + b, 0) + 10;
  const svg = shape("svg", element("div", root, "", { class: "scroll" }), { class: "drawn", id: "surprisal", width, height: high + 44, role: "group", "aria-label": said.surprisal });
  let x = 5;
  found.labels.forEach((token, i) => {
    const tall = Math.max(1, (high - 20) * Math.min(bits[i], most) / most), group = shape("g", svg, {
      tabindex: 0, role: "button", "aria-label": `${token}: ${bits[i].toFixed(2)} ${said.bits}`, onclick: () => page.set({ token: i }),
      onmouseenter: () => page.say(`${token}: ${bits[i].toFixed(6)} ${said.bits}`), onfocus: () => page.say(`${token}: ${bits[i].toFixed(6)} ${said.bits}`),
      opacity: i < (prompt ?? 0) ? 0.55 : 1, "data-bits": bits[i],
    });
    shape("rect", group, { class: "back", x, y: 0, width: wide[i], height: high + 40, fill: "transparent" });
    shape("rect", group, { x: x + 3, y: high - tall, width: wide[i] - 6, height: tall, rx: 2, fill: i === step ? "var(--chosen)" : "var(--accent)" });
    shape("text", group, { x: x + wide[i] / 2, y: high - tall - 4, "text-anchor": "middle", class: "small" }, bits[i].toFixed(1));
    shape("text", group, { x: x + wide[i] / 2, y: high + 18, "text-anchor": "middle", class: i === step ? "chosen" : "" }, token);
    x += wide[i];
  });
}
