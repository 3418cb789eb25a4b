"""The field's words: home-made ones are named, with the word that a reader searches for."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
WORDS = {
    r"\blinear maps?\b": "linear layer",
    r"\b(matrix |plain )?products?\b(?! of (the|a|our|probabilities|two|their)\b)": "matmul",
    r"\b(in|of|with) (8|eight) bits\b": "FP8, int8, quantized",
    r"\bkeys and values (kept|so far|of all tokens)\b": "KV cache",
    r"\b(Past|Room|KeysValues)\b": "DynamicCache, StaticCache, KeyValue",
    r"\b(few_queries|first_best|most_probable|softmax_gradient)\b": "decode attention, stable top-k, fused argmax, "
    "fused cross-entropy",
    r"\b(Packs?|packed weights?)\b": "prepacked weights",
    r"\b(Seats?|seats|Opening|sit)\b": "captured CUDA graphs, prefill graph",
    r"\b(read_on|ReadsOn)\b|\bclass Reading\b": "stateful forward, carried state",
    r"\blanes?\b": "micro-batch stream",
    r"\b(Kitchen|Endless)\b": "dataset, infinite sampler",
    r"\b(Wish|Draft|Manner|Laying|Paced|Varying)\b": "generation options, continuation, context mode, layout, "
    "step-aware, rate-scaled",
    r"\b(LockedDropout|model\.locked)\b": "variational dropout",
    r"\bmodel\.(share|tied)\b": "tie_weights",
    r"\boptimizer\.(rate|decay|clip)\b": "learning_rate, weight_decay, max_grad_norm",
    r"\b(feedforward|self)\.(widen|narrow)\b": "up_proj, down_proj",
    r"\bturned (weights?|matri\w+|tables?)\b|_turned\b": "transposed",
    r"\b(forced |a |the )beginnings?\b(?! of)": "prefix",
    r"\b[aA] training\b(?! (run|set|step|text|loop|corpus|batch|data|task|command|process|file|line|log|example|curve))|"
    r"\btrainings\b": "a training run",
    r"\b(goes|go|going|went) on (where|from|with)\b": "resumes, continues",
    r"\banew\b": "again",
    r"\b(is|are|was|were|be) told\b": "is reported",
    r"\bwhat stands? in\b": "what is in",
    r"\bby heart\b": "memorized",
    r"\b(is|are|was) fined\b": "is penalized",
    r"\b(model|query|queries|head|heads|layer|decoder|attention|position|token|word)s? looks? at\b": "attends to",
    r"\bword links?\b": "word alignment",
    r"\bnot? a? ?numbers? any ?more\b|\bwhat is not a number\b|\bno longer numbers\b": "NaN",
    r"\b(nats|bits|tokens|words|rows?|files?|lines?|vectors?|slots?|steps?|updates|sentences|hypotheses|scores?|numbers?|"
    r"weights?|seconds|bytes|columns?|keys?) an? (token|verb|word|step|line|second|sentence|row|hypothesis|update|"
    r"document|process|layer|head|key|model|recipe|corpus|character|value|section|weight|epoch|source|column|batch)\b":
    "per (nats per token)",
    r"\b\w*(tokenis|normalis|initialis|optimis|memoris|penalis|minimis|maximis|randomis|regularis|quantis)"
    r"(e|ed|es|er|ers|ing|ation|ations)\b": "American spelling: -ize",
    r"\b\w*(colour|neighbour|behaviour|favour|licence|centred|labelled|modelling|analyser)\w*\b": "American spelling",
    r"\binitialisation\b": "initialization",
    r"\bsurprise\b(?!d)": "surprisal",
    r'"""Of \w': "a subject first: no docstring begins with Of",
    r'"""(The same|Both|As many|As above)\b': "a docstring that stands alone: name what is the same",
}
"""Home-made words, as regular expressions, and the field's word."""
MARK = "words: ok"
"""A line that holds this may use any word; say beside it why."""
EXCEPTIONS = {
    "src/mallang/renamed.py": "names what had other names",
    "src/mallang/data/miniworld_*.py": "its words are those of a little world",
    "docs/glossary.md": "explains words",
}
"""Files that are not checked, and why."""
READ = ("src/mallang/**/*.py", "docs/**/*.md", "README*.md", "benchmarks/*.py", "CONTRIBUTING.md")
FILES = sorted({path for glob in READ for path in ROOT.glob(glob)})


def home_made(path: Path, text: str) -> list[str]:
    """The home-made words of a file, a line each: where, which, and what to write."""
    if any(path.match(glob) for glob in EXCEPTIONS):
        return []
    found = []
    for number, line in enumerate(text.splitlines(), 1):
        for pattern, word in WORDS.items():
            hit = re.search(pattern, line)
            if hit and MARK not in line:
                found.append(f"{path}:{number}: {hit[0]!r} is {word}")
    return found


def test_the_fields_words() -> None:
    found = [line for path in FILES for line in home_made(path.relative_to(ROOT), path.read_text("utf-8"))]
    assert len(FILES) > 200 and not found, "\n".join(found)


@pytest.mark.parametrize(
    ("line", "word"),
    [
        ("a product of 8 bits", "matmul"),
        ("the rows of a lane", "stream"),
        ("The tokeniser of a column", "-ize"),
        ("three nats a token", "per"),
        ("the run goes on where it ended", "resumes"),
    ],
)
def test_a_home_made_word_is_found(line: str, word: str) -> None:
    found = home_made(Path("src/mallang/layers/example.py"), f"fine\n{line}\n")
    assert found and "example.py:2" in found[0] and word in " ".join(found)
    assert home_made(Path("src/mallang/layers/example.py"), f"{line}  # {MARK}: quoted") == []


def test_the_list_stays_short_and_its_patterns_are_regular_expressions() -> None:
    assert len(WORDS) <= 40
    for pattern in WORDS:
        re.compile(pattern)
