"""Health checks of a trained model by its texts: each check takes plain data and returns a finding or none.

A check stays silent about what is normal for the data: where a reference repeats itself or equals its source, an
output may do so too.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from mallang.data.prepared import row_sum
from mallang.text.tokenizer import BYTE_UNITS, Tokenizer

FEW = 10
"""With fewer texts a share is not judged."""
DRIFT = 1.3
"""The factor from which outputs count as too long or too short."""
SAMPLE = 2000
"""Training lines whose tokens are counted."""
LOOP = re.compile(r"([^\s\d])\1{9,}|((?=\D).{2,40}?)\2{3,}|((?=\D).{10,80}?)\3{2,}")
"""One character ten times in a row, something short four times, something longer three times; numbers may do so."""


@dataclass(frozen=True)
class Finding:
    """A problem and its remedy."""

    name: str
    serious: bool
    """Whether the outputs cannot be trusted; otherwise they could merely be better."""
    what: str
    remedy: str
    count: int = 0
    of: int = 0
    example: str = ""

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return asdict(self)


@dataclass(frozen=True)
class Outputs:
    """Texts, the outputs of the model, and the references."""

    sources: Sequence[str]
    outputs: Sequence[str]
    references: Sequence[str]
    cut: Sequence[bool] = ()
    """Whether each output ended at the length limit."""

    def example(self, place: int) -> str:
        """One text, its output and its reference, for display."""
        return f"{shorten(self.sources[place])} → {shorten(self.outputs[place]) or '(nothing)'}"


@dataclass(frozen=True)
class Training:
    """Statistics of the training text that the checks need."""

    rows: int
    ratio: float
    """Characters of target per character of source."""
    scripts: Mapping[str, Mapping[str, float]]
    """The share of letters of each script, by side."""
    sample: Sequence[tuple[str, str]]
    """The first lines."""
    sources: frozenset[int]
    targets: frozenset[int]
    """Hashes of all target lines."""

    @classmethod
    def of(cls, rows: Iterable[Sequence[str]]) -> Training:
        """Read the training text once."""
        sample: list[tuple[str, str]] = []
        sums: tuple[list[int], list[int]] = ([], [])
        lengths = [0, 0]
        for source, target in rows:
            for side, text in enumerate((source, target)):
                sums[side].append(row_sum((plain(text),)))
                lengths[side] += len(text.strip())
            if len(sample) < SAMPLE:
                sample.append((source, target))
        scripts = {side: shares([row[place] for row in sample]) for place, side in enumerate(("source", "target"))}
        ratio = lengths[1] / max(1, lengths[0])
        return cls(len(sums[0]), ratio, scripts, sample, frozenset(sums[0]), frozenset(sums[1]))


def examine(found: Outputs, training: Training | None) -> list[Finding]:
    """All findings about the outputs of a model."""
    checks: list[Callable[[Outputs], Finding | None]] = [one_output, empty, cut_off, loops, copied]
    findings = [check(found) for check in checks]
    if training is not None:
        findings += [length_drift(found, training.ratio), memorized(found, training)]
        findings.append(other_script("output", found.outputs, training.scripts["target"]))
    return [finding for finding in findings if finding is not None]


def examine_text(side: str, texts: Sequence[str], tokenizer: Tokenizer, training: Training | None) -> list[Finding]:
    """All findings about the tokenization of the texts of one side."""
    findings = [unknown(side, texts, tokenizer), changed(side, texts, tokenizer)]
    if training is not None:
        place = 0 if side == "source" else 1
        findings.append(other_script(side, texts, training.scripts[side]))
        findings.append(fragmented(side, texts, tokenizer, [row[place] for row in training.sample]))
    return [finding for finding in findings if finding is not None]


def one_output(found: Outputs) -> Finding | None:
    """Different texts get the same output, or few different outputs."""
    pairs = {source: (output, reference) for source, output, reference in rows_of(found) if source.strip()}
    if len(pairs) < FEW:
        return None
    outputs, references = (Counter(plain(pair[side]) for pair in pairs.values()) for side in (0, 1))
    most, times = outputs.most_common(1)[0]
    usual = references.most_common(1)[0][1]
    if times > max(0.2 * len(pairs), 2 * usual):
        what = f"{times} of {len(pairs)} different texts get one and the same output"
    elif len(outputs) < 0.5 * len(references):
        what = f"{len(pairs)} different texts get only {len(outputs)} different outputs"
    else:
        return None
    return Finding(
        "one output",
        True,
        what,
        "the model does not use its source yet: train longer, with a lower optimizer.learning_rate or a longer "
        "schedule.warmup, and see that the lines of both files belong together (mallang data check)",
        times,
        len(pairs),
        shorten(most) or "(nothing)",
    )


def empty(found: Outputs) -> Finding | None:
    """Outputs that are empty."""
    places = [i for i, (source, output, reference) in enumerate(rows_of(found))
              if source.strip() and reference.strip() and not output.strip()]  # fmt: skip
    return places_finding(
        found, places, 0.01, "empty outputs", "outputs are empty",
        "look for empty targets in the training text (mallang data check); a beam may prefer to end at once: "
        "try --search length_penalty=average or a smaller beam",
    )  # fmt: skip


def cut_off(found: Outputs) -> Finding | None:
    """Outputs that were cut off at the length limit."""
    places = [i for i, is_cut in enumerate(found.cut) if is_cut]
    return places_finding(
        found, places, 0.01, "cut off", "outputs were cut off at the length limit",
        "if they repeat themselves train longer; if they are good, raise decoding.max_length or decoding.max_ratio",
    )  # fmt: skip


def loops(found: Outputs) -> Finding | None:
    """Outputs that repeat words in a loop."""
    places = [
        i
        for i, (source, output, reference) in enumerate(rows_of(found))
        if goes_round(output) and not goes_round(source) and not goes_round(reference)
    ]
    return places_finding(
        found, places, 0.01, "loops", "outputs repeat the same words again and again",
        "train longer or on more text, and prefer a beam to greedy search; a model that was stopped early does this",
    )  # fmt: skip


def goes_round(text: str) -> bool:
    """Whether a text repeats a part of itself; the appended space lets the last repetition match like the others."""
    return LOOP.search(f"{text} ") is not None


def copied(found: Outputs) -> Finding | None:
    """Outputs that copy their source, though the reference differs from it."""
    places = [i for i, row in enumerate(rows_of(found)) if is_copied(*row)]
    return places_finding(
        found, places, 0.02, "copied source", "outputs repeat their source instead of translating it",
        "remove training pairs whose two sides are the same text (mallang data check counts them), and see that "
        "source and target are not the same column",
    )  # fmt: skip


def is_copied(source: str, output: str, reference: str) -> bool:
    """Whether an output is (nearly) its source; not where the reference is so too."""
    words, given, wanted = (plain(text).split() for text in (output, source, reference))
    if len(words) < 3 or given == wanted:
        return False
    return contained(words, given) >= 0.8 and contained(wanted, given) < 0.5


def contained(words: Sequence[str], in_these: Sequence[str]) -> float:
    """The share of words that also occur in another text, each at most as often as there."""
    return sum((Counter(words) & Counter(in_these)).values()) / max(1, len(words))


def length_drift(found: Outputs, usual: float) -> Finding | None:
    """Outputs that are much shorter or longer than those the model was trained on."""
    given, said, wanted = (
        sum(len(text.strip()) for text in texts) for texts in (found.sources, found.outputs, found.references)
    )
    if is_few(found.sources) or not given or not usual or not said:
        return None
    drift = said / given / usual
    if any(1 / DRIFT < ratio < DRIFT for ratio in (drift, said / max(1, wanted))):
        return None  # the ratio is that of training, or of the references: these texts are like that
    longer = drift > 1
    return Finding(
        "length drift",
        not 0.5 < drift < 2,
        f"outputs have {said / given:.2f} characters per character of source, in training there were {usual:.2f}",
        "outputs run on: train longer, and look for loops"
        if longer
        else "outputs stop early: use length_penalty=average, and look for long sources whose targets were cut short",
    )


def memorized(found: Outputs, training: Training) -> Finding | None:
    """Outputs that are training targets word for word, though the reference differs."""
    places = [
        i
        for i, (source, output, reference) in enumerate(rows_of(found))
        if plain(output) != plain(reference)
        and len(output.split()) > 3
        and row_sum((plain(output),)) in training.targets
        and row_sum((plain(source),)) not in training.sources
    ]
    return places_finding(
        found, places, 0.1, "memorized", "outputs are lines of the training text, but not the translation wanted",
        "the model has memorized lines: train on more text, with more model.dropout, a smaller model, or "
        "stop earlier (train.patience)",
    )  # fmt: skip


def unknown(side: str, texts: Sequence[str], tokenizer: Tokenizer) -> Finding | None:
    """Tokens that are unknown to the tokenizer."""
    if is_few(texts):
        return None
    unk = tokenizer.vocabulary.unk
    ids = tokenizer.encode_batch(texts)
    total, count = sum(map(len, ids)), sum(row.count(unk) for row in ids)
    if not total or count / total < 0.01:
        return None
    pieces: Counter[str] = Counter()
    for text, row in zip(texts, ids, strict=True):
        if unk in row:
            encoding = tokenizer.encode(text)
            pieces.update(
                text[slice(*place)].strip()
                for place, number in zip(encoding.offsets, encoding.ids, strict=True)
                if number == unk
            )
    del pieces[""]
    return Finding(
        "unknown tokens",
        count / total >= 0.05,
        f"{count / total:.1%} of the tokens of the {side} are unknown to its tokenizer",
        'learn a tokenizer that knows them: text.unit="byte-bpe" has no unknown tokens, "bpe" few, and a larger '
        "text.vocabulary or training text of the same kind helps the others",
        count,
        total,
        "most often " + ", ".join(f"{piece!r}" for piece, _ in pieces.most_common(5)) if pieces else "",
    )


def changed(side: str, texts: Sequence[str], tokenizer: Tokenizer) -> Finding | None:
    """Texts that encoding and decoding changes, though all their tokens are known."""
    form, unk = tokenizer.config.normalization, tokenizer.vocabulary.unk

    def essence(text: str) -> str:
        text = text if form == "none" else unicodedata.normalize(form, text)
        return "".join((text.lower() if tokenizer.config.lowercase else text).split())

    known = [(i, row) for i, row in enumerate(tokenizer.encode_batch(texts)) if unk not in row]
    back = {i: tokenizer.decode(row) for i, row in known}
    places = [i for i, text in back.items() if essence(text) != essence(texts[i])]
    if is_few(texts[i] for i, _ in known) or len(places) <= 0.01 * len(known):
        return None
    return Finding(
        "changed by the tokenizer",
        True,
        f"{len(places)} of {len(known)} texts of the {side} come back from their tokens as something else",
        "the tokenizer was made for other text or its files were exchanged: restore them, or train again on such text",
        len(places),
        len(known),
        f"{shorten(texts[places[0]])} → {shorten(back[places[0]])}",
    )


def other_script(side: str, texts: Sequence[str], usual: Mapping[str, float]) -> Finding | None:
    """Letters of a script that this side did not have in training text."""
    here = shares(texts)
    new = {name: share for name, share in here.items() if share > 0.3 and usual.get(name, 0.0) < 0.01}
    if not new or not usual or is_few(texts):
        return None
    name, share = max(new.items(), key=lambda item: item[1])
    before = max(usual, key=lambda script: usual[script])
    example = next((text for text in texts if name in scripts_of(text)), "")
    remedy = (
        "the model writes another language than its training targets: see that no training pairs are swapped"
        if side == "output"
        else "see that source and target are not exchanged (data.source, data.target, data.columns); otherwise train "
        "on text in this script"
    )
    return Finding(
        "other script",
        True,
        f"{share:.0%} of the letters of the {side} are {name.title()}, in training they were {before.title()}",
        remedy,
        example=shorten(example),
    )


def fragmented(side: str, texts: Sequence[str], tokenizer: Tokenizer, trained: Sequence[str]) -> Finding | None:
    """Text with many more tokens per character than the training text."""
    if tokenizer.config.unit in BYTE_UNITS[:1] or is_few(texts) or not trained:
        return None
    here, usual = (tokens_per_character(some, tokenizer) for some in (texts, trained))
    if not usual or here / usual < 1.5:
        return None
    worst = max(texts, key=lambda text: tokens_per_character([text], tokenizer) if len(text) > 10 else 0.0)
    return Finding(
        "fragmented text",
        False,
        f"the {side} is cut into {here / usual:.1f} times as many tokens per character as the training text",
        "the text is of another kind or language than the tokenizer learned from: train on such text too",
        example=f"{shorten(worst)} → {' '.join(tokenizer.encode(worst).tokens[:12])} …",
    )


def tokens_per_character(texts: Sequence[str], tokenizer: Tokenizer) -> float:
    """The mean number of tokens per character."""
    return sum(map(len, tokenizer.encode_batch(texts))) / max(1, sum(len(text.strip()) for text in texts))


def shares(texts: Iterable[str]) -> dict[str, float]:
    """The share of letters of each script."""
    counts: Counter[str] = Counter()
    for text in texts:
        counts.update(scripts_of(text))
    return {name: count / counts.total() for name, count in counts.most_common()}


def scripts_of(text: str) -> Counter[str]:
    """The letters of a text by script: HANGUL, LATIN, CJK …, as their Unicode names begin."""
    letters = Counter(character for character in text if character.isalpha())
    found: Counter[str] = Counter()
    for letter, count in letters.items():
        found[unicodedata.name(letter, "UNNAMED").split()[0].split("-")[0]] += count
    return found


def places_finding(
    found: Outputs, places: Sequence[int], least: float, name: str, what: str, remedy: str
) -> Finding | None:
    """A finding about the outputs at `places`; none where there are few. A share of a tenth or more is serious."""
    total = sum(bool(source.strip()) for source in found.sources)
    if is_few(found.sources) or not places or len(places) < least * total:
        return None
    counted = f"{len(places)} of {total} {what}"
    return Finding(name, len(places) >= 0.1 * total, counted, remedy, len(places), total, found.example(places[0]))


def is_few(texts: Iterable[str]) -> bool:
    """Whether the texts, blank ones aside, are too few to judge a share of them."""
    return sum(bool(text.strip()) for text in texts) < FEW


def rows_of(found: Outputs) -> Iterable[tuple[str, str, str]]:
    """Triples of source, output and reference."""
    return zip(found.sources, found.outputs, found.references, strict=True)


def plain(text: str) -> str:
    """A text normalized for comparison."""
    return " ".join(unicodedata.normalize("NFC", text).casefold().split())


def shorten(text: str, most: int = 70) -> str:
    """A text shortened to one line."""
    text = " ".join(text.split())
    return text if len(text) <= most else text[: most - 1] + "…"
