"use strict";
// The live page as a server offers it: the model of ?run=NAME is fetched, then the page begins as it does from disk.

const TOKEN = "mallang-token";

async function fetchModel() {
  const run = new URLSearchParams(location.search).get("run"), token = sessionStorage.getItem(TOKEN);
  const headers = { "content-type": "application/json", ...(token ? { authorization: `Bearer ${token}` } : {}) };
  const answer = await fetch("/api/live", { method: "POST", headers, body: JSON.stringify(run ? { run } : {}) });
  const found = await answer.json();
  if (!answer.ok) throw new Error(found.error.message);
  return found.results[0];
}

function load(address) {
  return new Promise((done, failed) => {
    const script = document.createElement("script");
    Object.assign(script, { src: address, onload: done, onerror: failed });
    document.body.append(script);
  });
}

function hidden(id, text) {
  const made = document.createElement("script");
  Object.assign(made, { id, type: "text/plain", textContent: text });
  document.body.append(made);
}

(async () => {
  const problem = document.getElementById("problem");
  problem.textContent = "…";
  try {
    const { header, weights } = await fetchModel();
    problem.textContent = "";
    hidden("header", header);
    hidden("weights", weights);
    await load("/live/model.js");
    await load("/live/view.js");
  } catch (error) {
    problem.textContent = error.message;
  }
})();
