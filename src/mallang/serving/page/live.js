// The model in the browser: its weights come once, and everything is computed here.

import { element } from "#dom";

export const live = {
  id: "live",
  needs: shell => shell.runs.some(run => run.is_live),
  draw(root, shell) {
    const runs = shell.runs.filter(run => run.is_live);
    if (!runs.includes(shell.run)) shell.keep({ a: runs[0].name });
    shell.drawRuns(root, runs, false);
    element("p", root, shell.words.live.help, { class: "quiet" });
    const chosen = new URLSearchParams({ lang: shell.state.lang, ...(shell.text && shell.text.length <= 500 ? { in: shell.text } : {}) });
    element("iframe", root, "", { id: "live-frame", title: shell.words.tabs.live, src: `/live?run=${encodeURIComponent(shell.run.name)}#${chosen}` });
  },
};
