// Runs a module of the page on questions from standard input: [logProbs, rest, others, options] each.
const { truncated } = await import(process.argv[2]);
let text = "";
for await (const part of process.stdin) text += part;
console.log(JSON.stringify(JSON.parse(text).map(asked => truncated(...asked))));
