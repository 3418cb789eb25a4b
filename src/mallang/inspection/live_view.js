"use strict";
// What a person sees of a live page and does with it. All text is set as text, never as HTML.

const WORDS = {
  en: {
    other: "한국어", theme: "Light or dark", text: { source: "Text to read", prompt: "Beginning of a text" },
    output: { source: "Output", prompt: "Continuation" },
    outputHelp: "Each token with the probability that the model gave it. Choose one to see what else it considered.",
    attention: "Attention", attentionHelp: "Every layer and head. Rows are what reads, columns what is read; brighter is more.",
    focus: (name, head) => `${name}, ${head}`, head: number => `head ${number}`, mean: "mean of the heads",
    told: (query, key, weight) => `${query} attends to ${key} with ${weight}`,
    next: token => `In place of “${token}”`, nextHelp: "Choose another token: the model continues from there.",
    temperature: "temperature", topK: "top-k (0: all)", topP: "top-p", sample: "Sample again", greedy: "Most probable",
    free: "Undo choices", unknown: "Some characters are unknown to the model; it reads <unk> in their place.",
    cut: "The output ended at the length limit.",
    tooLong: (tokens, limit) => `The text has ${tokens} tokens, and the model reads at most ${limit}. Shorten it.`,
    weights: count => `${count} int8 weights`, ngrams: count => `${count} n-grams`,
    about: (model, size) => `${model} with ${size}. It runs here, in your browser; nothing is sent anywhere.`,
    facts: (ms, score) => `${ms} ms · log-probability ${score} · made with Mallang`,
    encoder: "encoder", decoder: "decoder", self: "self-attention", cross: "cross-attention", links: "Links of the chosen token",
  },
  ko: {
    other: "English", theme: "밝게 / 어둡게", text: { source: "읽을 글", prompt: "글의 첫머리" },
    output: { source: "출력", prompt: "이어 쓴 글" },
    outputHelp: "토큰마다 모델이 준 확률을 함께 보여 줍니다. 토큰을 고르면 다른 후보를 볼 수 있습니다.",
    attention: "어텐션", attentionHelp: "모든 층과 헤드입니다. 행은 읽는 쪽, 열은 읽히는 쪽이고, 밝을수록 가중치가 큽니다.",
    focus: (name, head) => `${name}, ${head}`, head: number => `헤드 ${number}`, mean: "헤드 평균",
    told: (query, key, weight) => `${query} → ${key}: 가중치 ${weight}`,
    next: token => `“${token}” 자리의 후보`, nextHelp: "다른 토큰을 고르면 모델이 거기서부터 다시 이어 갑니다.",
    temperature: "온도", topK: "top-k (0: 전체)", topP: "top-p", sample: "다시 샘플링", greedy: "가장 확률 높은 출력",
    free: "고른 것 취소", unknown: "모델이 모르는 글자가 있어 <unk>로 읽습니다.", cut: "출력이 길이 제한에서 끝났습니다.",
    tooLong: (tokens, limit) => `이 글은 ${tokens}토큰이고 모델은 ${limit}토큰까지 읽습니다. 줄여 주세요.`,
    weights: count => `int8 가중치 ${count}개`, ngrams: count => `n-gram ${count}개`,
    about: (model, size) => `${size}의 ${model}입니다. 브라우저 안에서 계산하며, 아무것도 밖으로 보내지 않습니다.`,
    facts: (ms, score) => `${ms} ms · 로그 확률 ${score} · 말랑으로 만듦`,
    encoder: "인코더", decoder: "디코더", self: "셀프 어텐션", cross: "크로스 어텐션", links: "고른 토큰의 연결",
  },
};
const SLIDERS = { temperature: [0.1, 2, 0.05, 1], topK: [0, 50, 1, 0], topP: [0.05, 1, 0.05, 1] };
const SHOWN = 10, WARM_UPS = 8;
/** The colors of weights from 0 to 1: cividis, which reads the same to color-blind eyes. */
const CIVIDIS = [[0, 34, 78], [53, 69, 108], [102, 105, 112], [148, 142, 119], [200, 184, 102], [254, 232, 56]];

const $ = id => document.getElementById(id);
const state = { language: "en", step: 0, map: null, head: null, forced: [], sampling: false, seed: 1, options: {} };
let live, result, shownResult, took = 0, isEdited = false;

function element(kind, content, parent, options = {}) {
  const made = document.createElement(kind);
  made.textContent = content;
  Object.assign(made, options);
  parent.append(made);
  return made;
}

const words = () => WORDS[state.language];
const shown = id => (id === live.header.special.eos ? "</s>" : live.target.shown(id));

/** The color of a weight; the square root brings out small ones. */
function colorOf(weight) {
  const place = Math.sqrt(weight) * (CIVIDIS.length - 1), lower = Math.min(Math.floor(place), CIVIDIS.length - 2);
  return CIVIDIS[lower].map((from, i) => Math.round(from + (CIVIDIS[lower + 1][i] - from) * (place - lower)));
}

/** The table of one head, or the mean of all. */
function weightsOf(map, head) {
  const size = map.rows * map.count;
  if (head !== null) return map.weights.subarray(head * size, (head + 1) * size);
  const mean = new Float32Array(size);
  for (let i = 0; i < map.weights.length; i++) mean[i % size] += map.weights[i] / map.heads;
  return mean;
}

// ------------------------------------------------------------------------------------------------------------ parts

function drawWords() {
  const said = words(), { header } = live, kind = live.source ? "source" : "prompt";
  document.documentElement.lang = state.language;
  document.title = header.name;
  $("name").textContent = header.name;
  $("language").textContent = said.other;
  $("theme").textContent = said.theme;
  $("about").textContent = said.about(header.model, sizeOf(header));
  $("text-label").textContent = said.text[kind];
  $("output-title").textContent = said.output[kind];
  for (const id of ["output-help", "attention-help", "next-help"]) $(id).textContent = said[id.replace("-help", "Help")];
  $("attention-title").textContent = said.attention;
  for (const id of ["sample", "greedy", "free"]) $(id).textContent = said[id];
  for (const name of Object.keys(SLIDERS)) $(`label-${name}`).textContent = said[name];
}

/** The size of a model in words: its weights, or its n-grams. */
function sizeOf({ config, weights }) {
  const written = count => count.toLocaleString(state.language), { sizes } = config;
  return sizes ? words().ngrams(written(sizes.reduce((sum, size) => sum + size))) : words().weights(written(weights));
}

function drawOutput() {
  const said = words();
  const problems = [result.unknown && said.unknown, result.isCut && said.cut].filter(Boolean);
  $("problem").textContent = result.tooLong ? said.tooLong(result.tokens, result.limit) : problems.join(" ");
  $("written").textContent = result.tooLong ? "" : result.output;
  if (shownResult !== result) drawTokens();
  for (const [place, made] of [...$("output").children].entries()) made.setAttribute("aria-pressed", place === state.step);
  if (result.tooLong) return;
  $("facts").textContent = said.facts(took.toFixed(0), result.score.toFixed(2));
}

/** The tokens of a new output. They stay while another is chosen: a new element under the mouse would be a new hover. */
function drawTokens() {
  shownResult = result;
  $("output").replaceChildren();
  (result.steps ?? []).forEach((step, place) => {
    const share = Math.exp(step.logProb), made = element("button", shown(step.id), $("output"), { type: "button" });
    made.className = step.isForced ? "token forced" : "token";
    made.title = `${(100 * share).toFixed(1)} %`;
    made.style.borderBottomColor = `rgb(${colorOf(share ** 2)})`;
    made.addEventListener("click", () => choose({ step: place }));
    made.addEventListener("mouseenter", () => preview(place));
    made.addEventListener("mouseleave", () => preview(state.step));
  });
}

function readableName(name) {
  const [side, layer, kind] = name.split("."), said = words();
  return layer === undefined ? said[side] : `${said[side]} ${Number(layer) + 1}, ${said[kind]}`;
}

/** The attention of all layers; a model without any has none to show. */
function drawAttention() {
  $("attention").hidden = !result.maps.length;
  if (!result.maps.length) return;
  drawHeads();
  drawMap();
}

function drawHeads() {
  const rows = new Map(result.maps.map(map => [map.name, map]));
  $("heads").replaceChildren();
  for (const [name, map] of rows) {
    const figure = element("figure", "", $("heads")), row = element("div", "", figure, { className: "row" });
    for (let head = 0; head < map.heads; head++) {
      const button = element("button", "", row, { type: "button" });
      button.setAttribute("aria-label", words().focus(readableName(name), words().head(head + 1)));
      button.setAttribute("aria-pressed", name === state.map && head === state.head);
      button.addEventListener("click", () => choose({ map: name, head: name === state.map && head === state.head ? null : head }));
      paint(element("canvas", "", button), map, weightsOf(map, head));
    }
    element("figcaption", readableName(name), figure);
  }
}

function paint(canvas, map, weights) {
  [canvas.width, canvas.height] = [map.count, map.rows];
  const context = canvas.getContext("2d"), image = context.createImageData(map.count, map.rows);
  weights.forEach((weight, i) => image.data.set([...colorOf(weight), 255], 4 * i));
  context.putImageData(image, 0, 0);
}

const isWriting = map => !map.name.startsWith("encoder");

/** The row of a map that belongs to the chosen step: where its token was predicted. */
function rowOf(map) {
  return isWriting(map) ? Math.min(map.rows - 1, result.begin.length - 1 + state.step) : null;
}

function drawMap() {
  const map = result.maps.find(({ name }) => name === state.map) ?? result.maps.at(-1), chosen = rowOf(map), said = words();
  const weights = weightsOf(map, state.head), table = $("map");
  $("focus").textContent = said.focus(readableName(map.name), state.head === null ? said.mean : said.head(state.head + 1));
  table.replaceChildren();
  const top = element("tr", "", element("thead", "", table)), body = element("tbody", "", table);
  element("th", "", top);
  for (const key of map.keys) element("th", key, top);
  map.queries.forEach((query, row) => {
    const line = element("tr", "", body);
    element("th", query, line).className = row === chosen ? "chosen" : "";
    map.keys.forEach((key, column) => {
      const weight = weights[row * map.count + column], cell = element("td", "", line);
      cell.style.backgroundColor = `rgb(${colorOf(weight)})`;
      cell.title = said.told(query, key, weight.toFixed(3));
      cell.addEventListener("mouseenter", () => { $("told").textContent = cell.title; });
    });
  });
  drawLinks(map, weights, chosen);
}

/** Two columns of tokens, and lines from the chosen one, or from all, to what they attend to. */
function drawLinks(map, weights, chosen) {
  const svg = $("links"), space = 22, height = space * (Math.max(map.rows, map.count) + 1), make = kind => document.createElementNS("http://www.w3.org/2000/svg", kind);
  svg.replaceChildren();
  svg.setAttribute("viewBox", `0 0 480 ${height}`);
  svg.setAttribute("aria-label", words().links);
  for (let row = 0; row < map.rows; row++) {
    if (chosen !== null && row !== chosen) continue;
    for (let key = 0; key < map.count; key++) {
      const line = make("line"), weight = weights[row * map.count + key];
      if (weight < 0.02) continue;
      for (const [name, value] of Object.entries({ x1: 165, y1: space * (row + 1) - 4, x2: 315, y2: space * (key + 1) - 4, "stroke-width": 6 * weight, "stroke-opacity": 0.25 + 0.75 * weight })) line.setAttribute(name, value);
      svg.append(line);
    }
  }
  const write = (token, x, row, anchor, className, told) => {
    const text = make("text");
    text.textContent = token;
    for (const [name, value] of Object.entries({ x, y: space * (row + 1), "text-anchor": anchor, class: className })) text.setAttribute(name, value);
    if (told) text.addEventListener("click", told);
    svg.append(text);
  };
  const stepOf = row => (isWriting(map) ? row - result.begin.length + 1 : -1);
  map.queries.forEach((query, row) => write(query, 160, row, "end", row === chosen ? "chosen" : "", stepOf(row) >= 0 && (() => choose({ step: stepOf(row) }))));
  map.keys.forEach((key, row) => write(key, 320, row, "start", "", null));
}

function drawNext() {
  const step = result.steps[state.step], said = words(), found = candidates(step.logProbs, state.options);
  $("next-title").textContent = said.next(shown(step.id));
  $("bars").replaceChildren();
  for (const { id, share, probability } of found.slice(0, SHOWN)) {
    const bar = element("button", "", $("bars"), { type: "button", className: share ? "bar" : "bar cut" });
    element("b", shown(id), bar);
    element("i", "", element("span", "", bar)).style.width = `${100 * (share || probability)}%`;
    element("u", `${(100 * share).toFixed(1)} %`, bar);
    bar.addEventListener("click", () => force(state.step, id));
  }
  $("free").disabled = !state.forced.length;
}

function makeSliders() {
  for (const [name, [min, max, step, value]] of Object.entries(SLIDERS)) {
    element("label", "", $("sliders"), { id: `label-${name}`, htmlFor: name });
    const slider = element("input", "", $("sliders"), { id: name, type: "range" });
    Object.assign(slider, { min, max, step, value });
    const said = element("span", value, $("sliders"));
    state.options[name] = value;
    slider.addEventListener("input", () => {
      said.textContent = state.options[name] = Number(slider.value);
      state.sampling ? compute() : drawNext();
    });
  }
}

// ---------------------------------------------------------------------------------------------------------- actions

function draw() {
  drawWords();
  drawOutput();
  if (result.tooLong) return;
  drawAttention();
  drawNext();
}

/** Run the model on the text and draw all of it again. */
function compute() {
  const begun = performance.now();
  result = live.run($("text").value, { forced: state.forced, sampling: state.sampling ? state.options : null, seed: state.seed });
  took = performance.now() - begun;
  if (!result.tooLong) {
    state.step = Math.min(state.step, result.steps.length - 1);
    state.map ??= (result.maps.findLast(({ name }) => name.includes("cross")) ?? result.maps.at(-1))?.name;
  }
  draw();
  remember();
}

function choose(changes) {
  Object.assign(state, changes);
  draw();
  remember();
}

/** The attention and the candidates of a step, while the mouse is on its token. */
function preview(step) {
  const locked = state.step;
  state.step = step;
  if (result.maps.length) drawMap();
  drawNext();
  state.step = locked;
}

/** Another token at a step: what came before it stays, what follows is generated again. */
function force(step, id) {
  Object.assign(state, { forced: [...result.ids.slice(0, step), id], step });
  compute();
}

function change(changes) {
  Object.assign(state, { forced: [], step: 0, ...changes });
  compute();
}

/** The state in the address, which no server sees, so that a view can be shared. */
function remember() {
  const { language, step, map, head } = state, text = $("text").value;
  if (text.length > 500) return;
  history.replaceState(null, "", "#" + new URLSearchParams({ in: text, lang: language, step, map, head: head === null ? "mean" : head + 1 }));
}

function recall() {
  const found = new URLSearchParams(location.hash.slice(1)), number = name => Number.parseInt(found.get(name), 10);
  state.language = WORDS[found.get("lang")] ? found.get("lang") : navigator.language.startsWith("ko") ? "ko" : "en";
  $("text").value = found.get("in") ?? live.header.examples[0] ?? "";
  if (number("step") > 0) state.step = number("step");
  if (number("head") > 0 && number("head") <= live.header.config.heads) state.head = number("head") - 1;
  if (/^((en|de)coder\.\d+\.)?(self|cross)$/.test(found.get("map"))) state.map = found.get("map");
}

function moveBy(steps) {
  if (!result.tooLong) choose({ step: Math.max(0, Math.min(result.steps.length - 1, state.step + steps)) });
}

function onKey(event) {
  if (event.isComposing || event.ctrlKey || event.metaKey || /TEXTAREA|INPUT/.test(event.target.tagName)) return;
  const layers = result.maps?.map(({ name }) => name) ?? [], place = layers.indexOf(state.map);
  if (event.key === "ArrowRight") moveBy(1);
  else if (event.key === "ArrowLeft") moveBy(-1);
  else if (event.key === "[" && place > 0) choose({ map: layers[place - 1] });
  else if (event.key === "]" && place + 1 < layers.length) choose({ map: layers[place + 1] });
  else if (/^[1-9]$/.test(event.key) && event.key <= live.header.config.heads) choose({ head: event.key - 1 });
  else if (event.key === "0" || event.key === "Escape") choose({ head: null });
  else if (event.key === "/") $("text").focus();
  else return;
  event.preventDefault();
}

async function begin() {
  const header = JSON.parse($("header").textContent);
  live = new Live(header, readTensors(header.tensors, await unpacked($("weights").textContent)));
  $("weights").remove();
  makeSliders();
  for (const example of header.examples) {
    element("button", example, $("examples"), { type: "button" }).addEventListener("click", () => {
      $("text").value = example;
      change({});
    });
  }
  $("text").addEventListener("input", () => {
    isEdited = true;
    change({});
  });
  $("language").addEventListener("click", () => choose({ language: state.language === "en" ? "ko" : "en" }));
  $("theme").addEventListener("click", () => {
    const root = document.documentElement, isDark = getComputedStyle(root).colorScheme === "dark" || (!root.dataset.theme && matchMedia("(prefers-color-scheme: dark)").matches);
    root.dataset.theme = isDark ? "light" : "dark";
  });
  $("sample").addEventListener("click", () => change({ sampling: true, seed: state.seed + 1 }));
  $("greedy").addEventListener("click", () => change({ sampling: false }));
  $("free").addEventListener("click", () => change({}));
  document.addEventListener("keydown", onKey);
  recall();
  compute();
  document.body.dataset.ready = "true";
  warmUp(WARM_UPS);
}

/**
 * Run the model and draw some times more: a browser compiles what has run often, and the first edit should be as fast as
 * the tenth. One run at a time, so that the page answers between them; none after the first edit.
 */
function warmUp(left) {
  if (left && !isEdited) setTimeout(() => {
    if (!isEdited) {
      live.run($("text").value, {});
      draw();
    }
    warmUp(left - 1);
  });
  else document.body.dataset.warm = "true";
}

begin();
