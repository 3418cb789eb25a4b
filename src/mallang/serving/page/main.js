// The page of the server: what is common to its tabs. A tab is `{id, needs(shell), draw(root, shell), leave?(shell)}`.

import { choice, element } from "#dom";
import { KEYS, read, write } from "#state";
import { Refused, ask, setToken } from "#serve/api";
import { inside } from "#serve/inside";
import { live } from "#serve/live";
import { recipes } from "#serve/recipes";
import { results } from "#serve/results";
import { training } from "#serve/training";
import { tryout } from "#serve/try";
import { WORDS } from "#serve/words";

Object.assign(KEYS, { page: ["text", null], a: ["text", null], b: ["text", null], verb: ["text", null], in: ["text", null], opt: ["text", null], look: ["text", null], lines: ["number", 0] });
const TABS = [tryout, inside, live, training, recipes, results];
/** The characters of a text that an address can hold; a longer one is not in it. */
export const SHARED = 200;

class Shell {
  constructor(root) {
    const { state, unknown } = read(location.hash);
    Object.assign(this, { root, state, runs: [], text: state.in ?? "", problem: null, drawn: null });
    state.lang ??= navigator.language?.startsWith("ko") ? "ko" : "en";
    state.theme ??= matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";
    this.unknown = unknown;
  }

  get words() { return WORDS[this.state.lang] ?? WORDS.en; }

  get tabs() { return TABS.filter(tab => tab.needs(this)); }

  get tab() { return this.tabs.find(tab => tab.id === this.state.page) ?? this.tabs[0]; }

  /** The chosen run, and the one that it is compared with. */
  get run() { return this.runs.find(run => run.name === this.state.a) ?? this.runs[0]; }

  get other() { return this.runs.find(run => run.name === this.state.b && run !== this.run) ?? null; }

  async begin() {
    try {
      this.runs = (await ask("/api/runs")).runs;
    } catch (error) {
      if (!(error instanceof Refused) || error.status !== 401) throw error;
      this.askForToken();
      return;
    }
    this.draw();
    if (this.unknown.length) this.say(this.words.unknown(this.unknown));
    document.body.dataset.ready = "true";
  }

  askForToken(wrong = false) {
    const said = this.words.token;
    this.dress();
    this.root.replaceChildren();
    const form = element("form", this.root, "", { id: "token-form", class: "row", onsubmit: event => { event.preventDefault(); setToken(input.value.trim()); this.begin().then(() => this.runs.length || this.askForToken(true)); } });
    element("h1", form, said.title);
    const label = element("label", form, `${said.label} `), input = element("input", label, "", { type: "password", id: "token", autocomplete: "off", required: true });
    element("button", form, said.send, { type: "submit" });
    element("p", form, wrong ? said.wrong : said.help, { class: wrong ? "problem" : "quiet", role: "status" });
    input.focus();
    document.body.dataset.ready = "token";
  }

  /** Change what is chosen, and draw it. */
  set(changes) {
    this.keep(changes);
    this.draw();
  }

  /** Change what is chosen where it is drawn already. */
  keep(changes) {
    Object.assign(this.state, changes);
    history.replaceState(null, "", write(this.state));
  }

  /** A new text: in the address if it is short enough. */
  read(text) {
    this.text = text;
    this.keep({ in: text && text.length <= SHARED ? text : null });
    if (text.length > SHARED) this.say(this.words.tooLong);
  }

  say(text, isProblem = false) {
    if (!this.told) return;
    this.told.textContent = text;
    this.told.classList.toggle("problem", isProblem);
  }

  fail(error) {
    if (error.name !== "AbortError") this.say(this.words.failed(error.status, error.message), true);
  }

  dress() {
    const root = document.documentElement;
    root.lang = this.state.lang;
    root.dataset.theme = this.state.theme;
  }

  draw() {
    const focused = document.activeElement?.dataset?.key;
    this.dress();
    if (this.drawn && this.drawn !== this.tab) this.drawn.leave?.(this);
    this.drawn = this.tab;
    this.root.replaceChildren();
    this.drawTop();
    this.told = element("p", this.root, "", { id: "told", role: "status" });
    this.tab.draw(element("div", this.root, "", { id: `tab-of-${this.tab.id}`, role: "tabpanel" }), this);
    if (focused) [...document.querySelectorAll("[data-key]")].find(each => each.dataset.key === focused)?.focus({ preventScroll: true });
  }

  drawTop() {
    const said = this.words, header = element("header", this.root, "", { id: "top" });
    element("h1", header, "말랑 Mallang");
    const buttons = element("div", header);
    const button = (id, text, onclick) => { element("button", buttons, text, { type: "button", id, onclick, "data-key": id }); buttons.append(" "); };
    button("language", said.other, () => this.set({ lang: this.state.lang === "ko" ? "en" : "ko" }));
    button("theme", said.theme, () => this.set({ theme: this.state.theme === "dark" ? "light" : "dark" }));
    button("keys", said.keys, () => this.help());
    const nav = element("nav", this.root, "", { role: "tablist", id: "tabs" });
    for (const tab of this.tabs) {
      element("button", nav, said.tabs[tab.id], { type: "button", role: "tab", id: `go-${tab.id}`, "data-key": `go-${tab.id}`, "aria-selected": String(tab === this.tab), onclick: () => this.set({ page: tab.id }) });
    }
  }

  /** The choice of a run, and of another one to compare it with. */
  drawRuns(root, runs, comparable = true) {
    const said = this.words, row = element("div", root, "", { class: "row" }), names = runs.map(run => [run.name, run.name]);
    choice(row, said.run, names, this.run.name, name => this.set({ a: name, verb: null })).id = "run-a";
    const others = comparable ? names.filter(([name]) => name !== this.run.name) : [];
    if (others.length) choice(row, said.with, [["", said.nobody], ...others], this.other?.name ?? "", name => this.set({ b: name || null })).id = "run-b";
    element("p", root, said.facts(this.run), { class: "quiet", id: "run-facts" });
  }

  onKey(event) {
    if (event.isComposing || event.altKey || event.target.closest("dialog")) return;
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) this.root.querySelector("form")?.requestSubmit();
    else if (event.ctrlKey || event.metaKey || event.target.closest("input, select, textarea")) return;
    else if (event.key === "/") this.root.querySelector("textarea")?.focus();
    else if (this.tab === inside) return;
    else if (event.key === "?") this.help();
    else if (/^[1-6]$/.test(event.key) && this.tabs[event.key - 1]) this.set({ page: this.tabs[event.key - 1].id });
    else return;
    event.preventDefault();
  }

  help() {
    const said = this.words.help, box = element("dialog", document.body), list = element("dl", (element("h2", box, said.title), box));
    for (const [keys, what] of said.keys) {
      element("kbd", element("dt", list), keys);
      element("dd", list, what);
    }
    element("button", box, said.close, { type: "button", onclick: () => box.close() });
    box.addEventListener("close", () => box.remove());
    box.showModal();
  }
}

const shell = new Shell(document.getElementById("shell"));
document.addEventListener("keydown", event => shell.runs.length && shell.onKey(event));
addEventListener("hashchange", () => {
  if (location.hash === write(shell.state)) return;
  Object.assign(shell.state, read(location.hash).state);
  shell.text = shell.state.in ?? "";
  shell.draw();
});
shell.begin().catch(error => { document.getElementById("shell").textContent = error.message; });
