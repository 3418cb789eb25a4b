"""Install what the benchmarks measure us against, in environments of their own below `.peers`.

python -m benchmarks.peers

`main` holds mallang and the packages in peers.txt. `joeynmt` is apart: what it asks for is too old for a current
Python, so only what its training needs is installed. `flair` is apart: it needs an older transformers.
"""

from __future__ import annotations

import subprocess
import sys
import venv
from pathlib import Path

from benchmarks.contest import PEERS, ROOT

CONSTRAINTS = ROOT / "constraints.txt"
TORCH = next(line for line in CONSTRAINTS.read_text("utf-8").splitlines() if line.startswith("torch"))
JOEYNMT = (
    "sacrebleu", "sacremoses", "sentencepiece", "subword-nmt", "pyyaml", "tensorboard", "packaging", "matplotlib",
    "seaborn", "datasets", "importlib-metadata", "setuptools<81",
)  # fmt: skip


def main() -> None:
    """Make them, or add to them what is missing."""
    own = environment("main")
    install(own, TORCH, "-r", str(ROOT / "benchmarks" / "peers.txt"), "-e", str(ROOT))
    joeynmt = environment("joeynmt")
    install(joeynmt, TORCH, "numpy", *JOEYNMT)
    install(joeynmt, "--no-deps", "joeynmt==2.3.0")
    install(environment("flair"), TORCH, "flair==0.15.1")


def environment(name: str) -> Path:
    """The Python of an environment, which is made if it is not there."""
    python = PEERS / name / "bin" / "python"
    if not python.exists():
        venv.create(PEERS / name, with_pip=True)
    return python


def install(python: Path, *packages: str) -> None:
    """Install with the constraints of the project, so that torch is the same for all."""
    command = [str(python), "-m", "pip", "install", "-q", "-c", str(CONSTRAINTS), *packages]
    if (code := subprocess.run(command).returncode) != 0:
        sys.exit(code)


if __name__ == "__main__":
    main()
