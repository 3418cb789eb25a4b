"""The files of the page: our own, the modules of `mallang inspect`, and the live page, all from this package.

A browser may load nothing from elsewhere and run nothing that stands in a text: scripts come from these files only, and
the import map, which must stand in the page itself, is allowed by its hash.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from starlette.responses import Response

from mallang.inspection import live, page

FOLDER = Path(__file__).with_name("page")
KINDS = {".html": "text/html", ".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"}
POLICY = (
    "default-src 'none'; script-src 'self'{hashes}; style-src 'self'; img-src 'self' data: blob:; connect-src 'self'; "
    "frame-src 'self'; frame-ancestors {framed}; base-uri 'none'; form-action 'none'"
)
"""What the page may load: nothing from elsewhere, nothing inline."""
LIVE_SCRIPTS = '<script src="/live/start.js"></script>'
"""What stands in the served live page instead of the model and its view: they are loaded once the weights have come."""


@dataclass(frozen=True)
class File:
    """A file as it is sent."""

    body: bytes
    kind: str
    policy: str

    def response(self) -> Response:
        """The answer that sends it."""
        headers = {
            "content-security-policy": self.policy,
            "x-content-type-options": "nosniff",
            "referrer-policy": "no-referrer",
            "cache-control": "no-cache",
        }
        return Response(self.body, headers=headers, media_type=self.kind)


@cache
def files() -> dict[str, File]:
    """All files by their paths."""
    inspected = page.modules()
    own = {path.stem: path.read_text("utf-8") for path in sorted(FOLDER.glob("*.js"))}
    imports = {f"#{name}": f"/inspect/{name}.js" for name in inspected} | {
        f"#serve/{name}": f"/page/{name}.js" for name in own
    }
    found = {f"/inspect/{name}.js": file(code, ".js") for name, code in inspected.items()}
    found |= {f"/page/{name}.js": file(code, ".js") for name, code in own.items()}
    found["/inspect/page.css"] = file((page.FOLDER / "page.css").read_text("utf-8"), ".css")
    found["/page/page.css"] = file((FOLDER / "page.css").read_text("utf-8"), ".css")
    found["/page/icon.svg"] = file((FOLDER / "icon.svg").read_text("utf-8"), ".svg")
    imported = json.dumps({"imports": imports})
    shell = (FOLDER / "index.html").read_text("utf-8").replace("{{imports}}", imported)
    digest = base64.b64encode(hashlib.sha256(imported.encode()).digest()).decode()
    found["/"] = file(shell, ".html", hashes=f" 'sha256-{digest}'")
    return found | live_files()


def live_files() -> dict[str, File]:
    """The live page with its style and scripts as files, and without any model."""
    whole = (live.FOLDER / "live_page.html").read_text("utf-8")
    style = re.search(r"<style>(.*?)</style>", whole, re.DOTALL)
    assert style is not None
    shell = whole.replace(style[0], '<link rel="stylesheet" href="/live/page.css">')
    shell = re.sub(r'<meta http-equiv="Content-Security-Policy"[^>]*>\n', "", shell)
    shell = re.sub(r"<script.*</script>", LIVE_SCRIPTS, shell, flags=re.DOTALL)
    return {
        "/live": file(shell, ".html", framed="'self'"),
        "/live/page.css": file(style[1], ".css"),
        "/live/start.js": file((FOLDER / "live" / "start.js").read_text("utf-8"), ".js"),
        "/live/model.js": file(live.model_script(), ".js"),
        "/live/view.js": file((live.FOLDER / "live_view.js").read_text("utf-8"), ".js"),
    }


def file(text: str, ending: str, *, hashes: str = "", framed: str = "'none'") -> File:
    """A file of text."""
    return File(text.encode(), KINDS[ending], POLICY.format(hashes=hashes, framed=framed))
