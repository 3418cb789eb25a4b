// The page: what is common to all views. A view is `{id, needs(page), draw(root, page)}` and may answer keys.

import { choice, element } from "#dom";
import { saving } from "#save";
import { read, write } from "#state";
import { WORDS } from "#words";
import { alignment } from "#view_alignment";
import { attention } from "#view_attention";
import { compare } from "#view_compare";
import { gates } from "#view_gates";
import { highlights } from "#view_highlights";
import { image } from "#view_image";
import { labels } from "#view_labels";
import { next } from "#view_next";
import { numbers } from "#view_numbers";
import { positions } from "#view_positions";
import { search } from "#view_search";
import { training } from "#view_training";
import { vectors } from "#view_vectors";

/** The views in the order of their tabs; those that a run cannot fill are absent. */
export const VIEWS = [
  labels, highlights, image, attention, alignment, next, search, numbers, gates, compare, vectors, positions, training,
];

/** Draw the page of some data into an element. */
export function open(root, data) {
  const { state, unknown } = read(location.hash);
  const page = new Page(root, data, state);
  page.draw();
  if (unknown.length) page.say(page.words.unknown(unknown));
  document.addEventListener("keydown", event => page.onKey(event));
  addEventListener("hashchange", () => {
    if (location.hash !== write(page.state)) {
      page.state = read(location.hash).state;
      page.draw();
    }
  });
  performance.mark("drawn");
  document.body.dataset.ready = "true";
  return page;
}

class Page {
  constructor(root, data, state) {
    Object.assign(this, { root, data, state });
    this.state.lang ??= navigator.language?.startsWith("ko") ? "ko" : "en";
    this.state.theme ??= matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";
  }

  get words() { return WORDS[this.state.lang] ?? WORDS.en; }

  get run() { return this.data.runs[this.state.run] ?? this.data.runs[0]; }

  /** The other run of a comparison, if there is one. */
  get other() { return this.data.runs[this.state.other] ?? null; }

  /** The text as the chosen run has read it; null if the page has no text. */
  get shown() { return this.run.texts[this.state.text] ?? this.run.texts[0] ?? null; }

  get views() { return VIEWS.filter(view => view.needs(this)); }

  get view() { return this.views.find(view => view.id === this.state.tab) ?? this.views[0]; }

  /** Change what is chosen, and draw it. */
  set(changes) {
    this.keep(changes);
    this.draw();
  }

  /** Change what is chosen where the view has drawn it already. */
  keep(changes) {
    Object.assign(this.state, changes);
    if (location.protocol !== "about:") history.replaceState(null, "", write(this.state)); // a frame in a notebook has no address
  }

  /** Say something to everybody, also to those who hear the page. */
  say(text) {
    if (this.told) this.told.textContent = text;
  }

  draw() {
    const focused = document.activeElement?.dataset?.key, root = document.documentElement;
    root.lang = this.state.lang;
    root.dataset.theme = this.state.theme;
    document.title = this.data.runs.map(run => run.name).join(" · ");
    this.root.replaceChildren();
    this.drawTop();
    this.drawText();
    this.drawTabs();
    this.told = element("p", null, "", { class: "told", role: "status" });
    const main = element("main", this.root, "", { id: "view" });
    this.root.append(this.told);
    this.view?.draw(main, this);
    if (this.view) saving(main, this, main);
    if (focused) [...document.querySelectorAll("[data-key]")].find(each => each.dataset.key === focused)?.focus({ preventScroll: true });
  }

  drawTop() {
    const said = this.words, header = element("header", this.root);
    element("h1", header, this.run.name);
    const buttons = element("div", header);
    const button = (id, text, onclick) => { element("button", buttons, text, { type: "button", id, onclick, "data-key": id }); buttons.append(" "); };
    button("language", said.other, () => this.set({ lang: this.state.lang === "ko" ? "en" : "ko" }));
    button("theme", said.theme, () => this.set({ theme: this.state.theme === "dark" ? "light" : "dark" }));
    button("keys", said.keys, () => this.help());
    element("p", this.root, said.facts(this.run), { class: "quiet", id: "facts" });
  }

  drawText() {
    const said = this.words, { runs } = this.data, row = element("div", this.root, "", { class: "row" });
    const fresh = { token: null, node: null, step: 0, map: null, head: null, part: 0, rung: 1 };
    if (runs.length > 1) choice(row, said.run, runs.map((run, i) => [i, run.name]), this.data.runs.indexOf(this.run), value => this.set({ ...fresh, run: Number(value), other: Number(value) === this.state.other ? this.state.run : this.state.other })).id = "run";
    const texts = this.run.texts;
    if (texts.length > 1) choice(row, said.text, texts.map((text, i) => [i, `${i + 1}. ${text.input.slice(0, 60)}`]), texts.indexOf(this.shown), value => this.set({ ...fresh, text: Number(value) })).id = "text";
    if (!this.shown) return;
    const box = element("div", this.root, "", { class: "text" });
    const line = (name, text, id) => { const made = element("div", box); element("span", made, `${name} `, { class: "quiet" }); element("b", made, text, { id }); };
    line(said.input, this.shown.input, "input");
    if (this.shown.output) line(said.output, this.shown.output, "output");
    const { window } = this.shown;
    if (window) element("p", box, said.window(window.start + 1, Math.min(window.start + window.size, window.of), window.of), { class: "quiet", id: "window" });
    if (this.shown.problem) element("p", box, `${said.compare.cannot}: ${this.shown.problem}`, { id: "problem" });
    if (this.shown.score !== null && this.shown.score !== undefined) element("span", box, `${said.score} ${this.shown.score.toFixed(4)}`, { class: "quiet" });
  }

  drawTabs() {
    const nav = element("nav", this.root, "", { role: "tablist" });
    for (const view of this.views) {
      element("button", nav, this.words.tabs[view.id], {
        type: "button", role: "tab", id: `tab-${view.id}`, "data-key": `tab-${view.id}`, "aria-selected": String(view === this.view), "aria-controls": "view",
        onclick: () => this.set({ tab: view.id }),
      });
    }
  }

  onKey(event) {
    if (event.isComposing || event.altKey || event.ctrlKey || event.metaKey || event.target.closest("input, select, textarea, dialog")) return;
    if (event.key === "?") this.help();
    else if (event.key === "c" && this.views.some(view => view.id === "compare")) this.set({ tab: "compare" });
    else if (event.key === "Escape") this.set({ token: null, node: null });
    else if (!this.view?.onKey?.(event, this)) return;
    event.preventDefault();
  }

  help() {
    const said = this.words.help, box = element("dialog", this.root), list = element("dl", (element("h2", box, said.title), box));
    for (const [keys, what] of said.keys) {
      element("kbd", element("dt", list), keys);
      element("dd", list, what);
    }
    element("button", box, said.close, { type: "button", onclick: () => box.close() });
    box.addEventListener("close", () => box.remove());
    box.showModal();
  }
}
