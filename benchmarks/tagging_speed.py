"""Tagging is at least three times as fast as with flair, at the same size, on the test sentences of CoNLL-2003.

Both have a word vector of 100, a character BiLSTM of 2 × 25 over character vectors of 25, a BiLSTM of 2 × 200 and a CRF
over BIOES tags. Both are trained on a few batches before, so that they predict mostly O, as trained taggers do: flair
and mallang both spend more time where there are more spans. A turn tags every sentence once, from its words to its
spans: flair with the confidence of every span, mallang with its probability and the marginal of every word. flair is
timed twice: with the making of its Sentence objects from words, and without.
"""

from __future__ import annotations

import logging
import os
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.contest import Entrant, Outcome, Turn, race
from benchmarks.report import Result, show

SEED = 1
WORD, CHARACTER, CHARACTER_HIDDEN, HIDDEN = 100, 25, 25, 200
TRAINING = 60
"""Batches of 32 sentences that a tagger is trained on before."""
PEERS = ("flair", "flair, Sentence objects made before")
Rows = list[tuple[list[str], list[str]]]


def measure(rounds: int = 5, sentences: int = 3453, threads: int = 2) -> dict[str, Result]:
    """Mallang and flair on so many test sentences."""
    import torch

    device, began = "cuda" if torch.cuda.is_available() else "cpu", time.monotonic()
    outcomes = race(entrants_of(sentences, device, threads), rounds)
    rows = rows_of(outcomes)
    show(f"tagging CoNLL-2003 test, {device}", [("", "sentences/s", "MiB", "mallang is times faster"), *rows])
    return {
        f"tagging-{device}-{label.replace(', ', '-').replace(' ', '-')}": Result(
            system=label,
            metric=f"tagging on {device}, sentences/s",
            value=round(rate, 1),
            corpus="conll2003",
            split="test",
            protocol=f"LSTM-CRF with a character LSTM, {sentences} sentences, {threads} threads; in processes of their "
            f"own, by turns, median of {rounds}",
            seed=SEED,
            seconds=round(time.monotonic() - began, 1),
            signature=f"{label}: peak {memory:.0f} MiB, mallang is {ratio} times as fast|{outcomes[label].signature}",
        )
        for label, rate, memory, ratio in rows
    }


def entrants_of(sentences: int, device: str, threads: int) -> list[Entrant]:
    """Flair with and without the making of its objects, and mallang."""
    options = {"sentences": sentences, "device": device, "threads": threads}
    here = {"OMP_NUM_THREADS": str(threads)}
    return [
        *(
            Entrant(
                label, "benchmarks.tagging_speed:theirs", {**options, "made_before": bool(number)}, ("flair",), here
            )
            for number, label in enumerate(PEERS)
        ),
        Entrant("mallang", "benchmarks.tagging_speed:ours", options, environment=here),
    ]


def rows_of(outcomes: Mapping[str, Outcome]) -> list[tuple[str, float, float, Any]]:
    """Each with its speed, its memory, and the speed of mallang over it."""
    own = outcomes["mallang"].rate
    return [(label, one.rate, one.peak / 2**20, round(own / one.rate, 2)) for label, one in outcomes.items()]


def conll(split: str, most: int) -> Rows:
    """Sentences of CoNLL-2003 as words and IOB1 tags; read here, since flair's process may not have mallang."""
    files = {"train": "eng.train", "test": "eng.testb"}
    text = Path(os.environ["MALLANG_DATA"], "conll2003", files[split]).read_text("utf-8")
    blocks = [[line.split(" ") for line in block.splitlines()] for block in text.strip().split("\n\n")]
    rows = [([line[0] for line in block], [line[-1] for line in block]) for block in blocks]
    return [row for row in rows if row[0][0] != "-DOCSTART-"][:most]


def ours(sentences: int, device: str, threads: int) -> Turn:
    """The verb `tag` of mallang on sentences that are split into words."""
    import torch

    from mallang.data.columns import LabelSet
    from mallang.models import lstm_crf
    from mallang.tasks.tagging import Config, Task, Verbs
    from mallang.text import tokenizer

    torch.set_num_threads(threads)
    torch.manual_seed(SEED)
    rows = conll("train", 14_041)
    text = tokenizer.Tokenizer.train(
        (" ".join(words) for words, _ in rows), tokenizer.Config(unit="space", vocabulary=50_000)
    )
    labels = LabelSet.learn(("\t".join(tags) for _, tags in rows), "tags", "tags")
    task = Task(Config(), {"words": text}, {"tags": labels})
    config = lstm_crf.Config(
        embedding_dim=WORD, characters="lstm", character_dim=CHARACTER, character_features=2 * CHARACTER_HIDDEN,
        dim=HIDDEN,
    )  # fmt: skip
    model: Any = task.build(lstm_crf, config).to(device)
    train_ours(task, model, rows, device)
    verbs = Verbs(task, model.eval(), None, 0)
    texts = [words for words, _ in conll("test", sentences)]

    def run() -> float:
        return float(len(verbs.tag(texts)))

    return run


def train_ours(task: Any, model: Any, rows: Rows, device: str) -> None:
    """Some updates, so that the model predicts mostly O."""
    import torch

    optimizer = torch.optim.Adam(model.parameters(), 2e-3)
    columns = [each.encoder.encode_batch(["\t".join(row[each.place]) for row in rows]) for each in task.arrays()]
    examples = list(zip(*columns, strict=True))
    for first in range(0, 32 * TRAINING, 32):
        batch = task.collate(examples[first : first + 32]).to(device)
        optimizer.zero_grad()
        (task.loss(model, batch, None).sums["loss"] / task.counts(batch)["loss"]).backward()
        optimizer.step()


def theirs(sentences: int, device: str, threads: int, made_before: bool) -> Turn:
    """The SequenceTagger of flair, by batches of 128: larger ones are not faster."""
    import flair
    import torch
    from flair.data import Dictionary, Sentence
    from flair.embeddings import CharacterEmbeddings, OneHotEmbeddings, StackedEmbeddings
    from flair.models import SequenceTagger

    logging.getLogger("flair").setLevel(logging.ERROR)  # it would print all words
    torch.set_num_threads(threads)
    torch.manual_seed(SEED)
    flair.device = torch.device(device)
    rows = conll("train", 14_041)
    words, tags = Dictionary(), Dictionary(add_unk=False)
    for sentence, _ in rows:
        for word in sentence:
            words.add_item(word)
    for kind in sorted({tag[2:] for _, row in rows for tag in row if tag != "O"}):
        tags.add_item(kind)
    tags.span_labels = True
    embeddings = StackedEmbeddings(
        [
            OneHotEmbeddings(words, embedding_length=WORD),
            CharacterEmbeddings(characters_of(rows), CHARACTER, CHARACTER_HIDDEN),
        ]
    )
    tagger = SequenceTagger(
        embeddings, tags, "ner", tag_format="BIOES", hidden_size=HIDDEN, rnn_layers=1, reproject_embeddings=False
    )
    train_theirs(tagger, rows)
    texts = [words for words, _ in conll("test", sentences)]

    def made() -> list[Any]:
        return [Sentence(list(words), use_tokenizer=False) for words in texts]

    kept = made() if made_before else None  # predict clears what it found before

    def run() -> float:
        batch = made() if kept is None else kept
        tagger.predict(batch, mini_batch_size=128)
        return float(len(batch))

    return run


def characters_of(rows: Rows) -> str:
    """A file with the characters of the text; without one flair would download its own."""
    from flair.data import Dictionary

    found = Dictionary()
    for letter in sorted({letter for words, _ in rows for word in words for letter in word}):
        found.add_item(letter)
    path = Path(tempfile.mkdtemp(), "characters")
    found.save(path)
    return str(path)


def train_theirs(tagger: Any, rows: Sequence[tuple[list[str], list[str]]]) -> None:
    """Some updates, so that the model predicts mostly O."""
    import torch
    from flair.data import Sentence

    optimizer = torch.optim.Adam(tagger.parameters(), 2e-3)
    tagger.train()
    for first in range(0, 32 * TRAINING, 32):
        batch = []
        for words, tags in rows[first : first + 32]:
            sentence = Sentence(list(words), use_tokenizer=False)
            for kind, start, end in spans_of(tags):
                sentence[start:end].add_label("ner", kind)
            batch.append(sentence)
        optimizer.zero_grad()
        loss, count = tagger.forward_loss(batch)
        (loss / count).backward()
        optimizer.step()
    tagger.eval()


def spans_of(tags: Sequence[str]) -> list[tuple[str, int, int]]:
    """The spans of IOB1 tags: type, first word, first word after it."""
    found: list[tuple[str, int, int]] = []
    for place, tag in enumerate(tags):
        kind = tag[2:]
        if tag == "O":
            continue
        if found and found[-1][2] == place and found[-1][0] == kind and not tag.startswith("B-"):
            found[-1] = (kind, found[-1][1], place + 1)
        else:
            found.append((kind, place, place + 1))
    return found
