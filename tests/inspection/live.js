// Runs the model of a live page in Node, for tests: the page is the argument; a list of [text, options] comes in, their outputs go out.
const fs = require("fs"), html = fs.readFileSync(process.argv[2], "utf8");
const part = (id) => html.match(new RegExp(`id="${id}">(.*?)</script>`, "s"))[1];
const script = [...html.matchAll(/<script>\n(.*?)<\/script>/gs)][0][1];
const { Live, Tokenizer, unpacked, readTensors, candidates } = new Function(`${script}; return { Live, Tokenizer, unpacked, readTensors, candidates };`)();
(async () => {
  const header = JSON.parse(part("header")), tensors = readTensors(header.tensors, await unpacked(part("weights")));
  const live = new Live(header, tensors);
  const outputs = JSON.parse(fs.readFileSync(0, "utf8")).map(([text, options]) => {
    const found = live.run(text, options ?? {});
    if (found.tooLong) return found;
    const maps = Object.fromEntries(found.maps.map(map => [map.name, { queries: map.queries, keys: map.keys, heads: map.heads, weights: Array.from(map.weights) }]));
    const tops = found.steps.map(step => candidates(step.logProbs, (options ?? {}).shown).slice(0, 5));
    return { output: found.output, ids: found.ids, score: found.score, isCut: found.isCut, unknown: found.unknown, maps, tops,
             read: (live.source ?? live.target).encode(text), shares: found.steps.map(step => step.logProb) };
  });
  console.log(JSON.stringify(outputs));
})();
