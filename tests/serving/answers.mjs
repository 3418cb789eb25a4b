// Draws results with the page's own script into elements that only keep their text, and prints these texts.
import { readFileSync } from "node:fs";

const source = readFileSync(process.argv[2], "utf8").replace(/^import .*$/gm, "").replace(/^export /gm, "");
class Node {
  constructor(text) { this.parts = [text]; }
  append(text) { this.parts.push(text); }
  set textContent(text) { this.parts = [text]; }
  get text() { return this.parts.map(part => (part instanceof Node ? part.text : part)).join(" "); }
}
const element = (name, parent, text = "") => { const made = new Node(String(text)); parent.append(made); return made; };
const said = new Proxy({}, { get: (_, name) => (["gap", "vector", "total"].includes(name) ? (...given) => `${name} ${given}` : name) });
const draw = new Function("element", "css", "weightColor", `${source}; return drawResult;`)(element, () => "", () => "");
const drawn = JSON.parse(readFileSync(0, "utf8")).map(([verb, result, context]) => {
  const root = new Node("");
  draw(root, verb, result, said, context);
  return root.text;
});
console.log(JSON.stringify(drawn));
