# ruff: noqa: E501 - the script below is not Python
from __future__ import annotations

import json
import re
import shutil
import subprocess

import pytest
import torch

from mallang.errors import UserError
from mallang.inspection.alignment import Seen
from mallang.inspection.attention import AttentionMap
from mallang.inspection.page import as_plain, write_page

NASTY = "</script><script>alert(1)</script> & \"quotes\" 'and' <b> 배를"
DOM = """
const fs = require("fs"), html = fs.readFileSync(process.argv[1], "utf8");
class Node {
  constructor(kind) { this.kind = kind; this.children = []; this.style = {}; this.text = ""; this.listeners = {}; }
  set textContent(text) { this.text = String(text); this.children = []; }
  get textContent() { return this.text; }
  append(child) { this.children.push(child); if (this.kind === "select" && this.chosen === undefined) this.chosen = child; }
  replaceChildren() { this.children = []; this.chosen = undefined; }
  addEventListener(name, told) { this.listeners[name] = told; }
  set value(value) { if (this.kind === "select") this.chosen = this.children.find(one => one.own === value); else this.own = value; }
  get value() { return this.kind === "select" ? (this.chosen ? this.chosen.own : "") : this.own; }
  all(kind) { return [...(this.kind === kind ? [this] : []), ...this.children.flatMap(one => one.all(kind))]; }
}
const named = {};
for (const [, kind, id] of html.matchAll(/<(\\w+)[^>]* id="(\\w+)"/g)) named[id] = new Node(kind);
named.data.text = html.match(/id="data">(.*?)<\\/script>/s)[1];
globalThis.document = { getElementById: id => named[id], createElement: kind => new Node(kind) };
eval(html.match(/<script>(.*?)<\\/script>/s)[1]);
const state = () => ({
  heads: named.maps.all("figcaption").map(one => one.text), cells: named.maps.all("td").map(one => one.title).filter(Boolean),
  colors: named.maps.all("td").map(one => one.style.backgroundColor).filter(Boolean),
  labels: named.maps.all("th").map(one => one.text), layer: named.layer.value, output: named.output.text,
});
const seen = [state()];
named.head.value = "mean"; named.head.listeners.change(); seen.push(state());
named.layer.value = "0"; named.layer.listeners.change(); seen.push(state());
named.text.value = "1"; named.text.listeners.change(); seen.push(state());
console.log(JSON.stringify(seen));
"""


def seen(text="나는 배를 탔다.", output="I took it."):
    cross = torch.tensor([[[0.9, 0.1], [0.25, 0.75]], [[0.5, 0.5], [0.0, 1.0]]])
    maps = {
        "encoder.0.self": AttentionMap("encoder.0.self", torch.eye(2)[None], ("나", "배"), ("나", "배")),
        "decoder.0.cross": AttentionMap("decoder.0.cross", cross, ("I", "</s>"), ("나", "배")),
        "decoder.0.self": AttentionMap("decoder.0.self", torch.eye(2)[None], ("I", "</s>"), ("<s>", "I")),
    }
    return Seen(text, output, -1.5, maps, {})


def data_in(path):
    (found,) = re.findall(r'id="data">(.*?)</script>', path.read_text("utf-8"), re.DOTALL)
    return json.loads(found)


def test_the_page_holds_every_text_layer_and_head(tmp_path):
    texts = data_in(write_page(tmp_path / "a.html", [seen(), seen("둘", "two")]))["texts"]
    assert [one["input"] for one in texts] == ["나는 배를 탔다.", "둘"]
    assert [one["name"] for one in texts[0]["maps"]] == ["encoder.0.self", "decoder.0.cross", "decoder.0.self"]
    assert texts[0]["maps"][1]["weights"] == [[[0.9, 0.1], [0.25, 0.75]], [[0.5, 0.5], [0.0, 1.0]]]
    assert texts[0]["first"] == 1  # it opens with the layer that looks at the source


def test_text_stays_text_and_nothing_is_loaded(tmp_path):
    path = write_page(tmp_path / "a.html", [seen(NASTY, NASTY)])
    page = path.read_text("utf-8")
    assert data_in(path)["texts"][0]["output"] == NASTY
    assert page.count("</script>") == 2 and "alert(1)</script>" not in page
    assert "default-src 'none'" in page and "innerHTML" not in page
    assert not re.search(r"(src|href)=|https?://|@import|url\(", page)


def test_layers_and_heads_can_be_chosen():
    plain = as_plain(seen(), ["decoder.0.cross"], "2")
    assert [one["name"] for one in plain["maps"]] == ["decoder.0.cross"]
    assert plain["maps"][0]["weights"] == [[[0.5, 0.5], [0.0, 1.0]]] and plain["maps"][0]["heads"] == ["head 2"]
    assert as_plain(seen(), ["decoder.0.cross"], "mean")["maps"][0]["weights"][0][0] == pytest.approx([0.7, 0.3])
    with pytest.raises(UserError, match="no layer 'decoder.0.cros'") as caught:
        as_plain(seen(), ["decoder.0.cros"])
    assert "decoder.0.cross" in str(caught.value)


@pytest.mark.skipif(shutil.which("node") is None, reason="needs node to run the page's script")
def test_the_script_draws_what_is_chosen(tmp_path):
    path = write_page(tmp_path / "a.html", [seen(output=NASTY), seen("둘", "two")])
    ended = subprocess.run(["node", "-e", DOM, str(path)], capture_output=True, text=True, timeout=60)
    assert ended.returncode == 0, ended.stderr
    first, mean, other, second = json.loads(ended.stdout)
    assert first["layer"] == "1" and first["heads"] == ["head 1", "head 2"] and first["output"] == NASTY
    assert first["cells"][:3] == ["I → 나: 0.9000", "I → 배: 0.1000", "</s> → 나: 0.2500"]
    assert first["colors"][0] == "rgba(8, 48, 107, 0.900)" and len(first["cells"]) == 8
    assert first["labels"][:3] == ["나", "배", "I"]
    assert mean["heads"] == ["mean of the heads"] and mean["cells"][0] == "I → 나: 0.7000"
    assert other["labels"][2:] == ["나", "배"] and other["cells"][0] == "나 → 나: 1.0000"
    assert second["output"] == "two" and second["layer"] == "0"  # the choice of layer stays
