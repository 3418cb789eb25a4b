// The distribution that sampling draws from, as decoding/sampling.py makes it: temperature, then top-k, then top-p.

/**
 * `logProbs` of the listed tokens, the most probable first; `rest` is log Σ p^(1/T) of the others at this temperature.
 * Gives the share of every listed token, that of all others, how many can be drawn, how much of the distribution they
 * hold, and whether that is exact: it is not where more tokens can be drawn than are listed.
 */
export function truncated(logProbs, rest, others, { temperature, k, p }) {
  const highest = logProbs[0] / temperature, weights = Array.from(logProbs, each => Math.exp(each / temperature - highest));
  const tail = others > 0 ? Math.exp(rest - highest) : 0, total = weights.reduce((a, b) => a + b, 0) + tail;
  const limit = k > 0 ? k : Infinity;
  const withinK = weights.slice(0, limit), tailInK = limit > weights.length ? tail : 0;
  const sum = withinK.reduce((a, b) => a + b, 0) + tailInK;
  let kept = withinK.length, before = 0, cutTail = false;
  if (p < 1) {
    kept = 0;
    while (kept < withinK.length && before < p * sum) before += withinK[kept++];
    cutTail = before >= p * sum;
  }
  const withTail = tailInK > 0 && !cutTail, listed = weights.slice(0, kept).reduce((a, b) => a + b, 0);
  const tailKept = withTail ? (p < 1 ? Math.max(0, p * sum - listed) : tailInK) : 0, mass = listed + tailKept;
  return {
    shares: weights.map((weight, i) => (i < kept ? weight / mass : 0)), others: tailKept / mass, count: withTail ? (p < 1 ? null : kept + others) : kept,
    mass: mass / total, isExact: !withTail || (p >= 1 && limit === Infinity),
  };
}
