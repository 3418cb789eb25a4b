// What is chosen, kept in the fragment of the address, which no server sees: a link opens the same view.

/** Every key with its kind and what it is without being chosen. */
export const KEYS = {
  tab: ["text", null], run: ["number", 0], other: ["number", 1], text: ["number", 0], map: ["text", null],
  head: ["number", null], token: ["number", null], step: ["number", 0], node: ["number", null], root: ["number", 1],
  temperature: ["number", 1], k: ["number", 0], p: ["number", 1], part: ["number", 0], pruned: ["number", 1],
  rung: ["number", 1], table: ["number", 0], gate: ["text", null],
  metric: ["text", null], log: ["number", 0], lang: ["text", null], theme: ["text", null],
};
const LONGEST = 200;

/** The state that an address asks for, and the keys in it that are not known. */
export function read(fragment) {
  const state = Object.fromEntries(Object.entries(KEYS).map(([key, [, value]]) => [key, value])), unknown = [];
  for (const [key, value] of new URLSearchParams(fragment.replace(/^#/, ""))) {
    if (key === "v") continue;
    const [kind] = KEYS[key] ?? [];
    const read = kind === "number" ? Number(value) : value;
    if (!kind || value === "" || value.length > LONGEST || (kind === "number" && !Number.isFinite(read))) unknown.push(key);
    else state[key] = read;
  }
  return { state, unknown };
}

/** The fragment of a state: what is not as it is without being chosen. */
export function write(state) {
  const found = new URLSearchParams({ v: 1 });
  for (const [key, [, usual]] of Object.entries(KEYS)) {
    if (state[key] !== usual && state[key] !== null && state[key] !== undefined) found.set(key, String(state[key]).slice(0, LONGEST));
  }
  return `#${found}`;
}
