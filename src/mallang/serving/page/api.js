// Requests to the server. The token is kept as long as the tab is open, and goes nowhere else.

const TOKEN = "mallang-token";

/** A request that was refused: its status, why, and the field that is to blame. */
export class Refused extends Error {
  constructor(status, { message, param, code }) {
    super(message);
    Object.assign(this, { status, param, code });
  }
}

export const setToken = token => (token ? sessionStorage.setItem(TOKEN, token) : sessionStorage.removeItem(TOKEN));

function headers() {
  const token = sessionStorage.getItem(TOKEN);
  return token ? { authorization: `Bearer ${token}` } : {};
}

async function send(path, body, signal) {
  const init = body === undefined ? { headers: headers() } : { method: "POST", headers: { ...headers(), "content-type": "application/json" }, body: JSON.stringify(body) };
  const answer = await fetch(path, { ...init, signal, cache: "no-store" });
  if (answer.ok) return answer;
  const said = await answer.json().catch(() => null);
  throw new Refused(answer.status, said?.error ?? { message: `HTTP ${answer.status}` });
}

/** The JSON that answers a request; without a body it is a GET. */
export async function ask(path, body, signal) {
  return (await send(path, body, signal)).json();
}

/** The events of a stream, one after another. */
export async function* events(path, body, signal) {
  const answer = await send(path, { ...body, stream: true }, signal), reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  for (let rest = ""; ;) {
    const { value, done } = await reader.read();
    if (done) return;
    const parts = (rest + value).split("\n\n");
    rest = parts.pop();
    for (const part of parts) {
      const text = part.replace(/^data: /, "");
      if (text === "[DONE]") return;
      const event = JSON.parse(text);
      if (event.error) throw new Refused(500, event.error);
      yield event;
    }
  }
}
