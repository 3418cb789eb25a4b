"""A text beside the model's own output for it, as one batch: what `forward` reads again when the search has ended.

    both = text_with_output(model, "유나는 지난주에 배를 탔다.")
    both.batch.labels                        # the output, which the model predicts token by token

A language model has no source: its text is a prompt, and prompt and output are one row of tokens.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from mallang.data.batch import Batch, pad_rows
from mallang.decoding.contract import Config, Hypothesis
from mallang.decoding.options import change_search
from mallang.decoding.scoring import with_labels
from mallang.errors import UserError
from mallang.inspection.attention import Side
from mallang.layers.head import Headed
from mallang.tasks import autoencoding, generation, translator
from mallang.tasks.continuation import Continuation
from mallang.tasks.graph_chooser import ShowsPaths
from mallang.text.tokenizer import Tokenizer
from mallang.text.vocabulary import BOS, EOS


@dataclass(frozen=True)
class Words:
    """The words of a text, and the word that each token is part of; None: the token is part of no word, as `</s>`."""

    words: tuple[str, ...]
    owners: tuple[int | None, ...]


@dataclass(frozen=True)
class TextWithOutput:
    """A text, an output for it, and both as a batch of one row."""

    input: str
    output: str
    batch: Batch
    words: Mapping[Side, Words]
    """The words of each side and their tokens."""
    first: int = 0
    """The index of the first label of the output; a prompt has labels, too."""


def text_with_output(
    model: Any, text: str, *, target: str | None = None, domain: str | None = None, **search: Any
) -> TextWithOutput:
    """A text and the output that a loaded model finds for it, or `target` in place of that output.

    To a language model the text is a prompt, and `target` is the continuation, including the space between them.
    """
    model = searching(model)
    if isinstance(model, generation.Verbs):
        refuse_domain(domain)
        return continued(model, text, target, search)
    task, tag = model.task, next(iter(model.tags(domain)))
    batch, source = read(model, text, tag)
    if target is None:
        ((found, *_),) = model.search([text], change_search(model.config, search), tags=[tag])
        labels, output = list(found.labels(EOS)), task.target.decode(found.tokens)
        said = words_said(task.target, found.tokens)
    elif search:
        raise UserError("options of the search have no effect on a given target", todo="leave one of them out")
    else:
        given = task.target.encode(target)
        labels, output, said = [*given.ids, EOS], target, words_in(target, given.offsets)
    if not labels:
        raise UserError("the output of the model is empty", todo="allow longer outputs: --search max_length=100")
    batch = with_labels(batch, [labels], task.target.vocabulary).to(model.device)
    words: dict[Side, Words] = {
        "source": source,
        "said": padded(said, 0, len(labels) - len(said.owners)),
        "read": padded(said, 1, 0, most=len(labels)),
    }
    return TextWithOutput(text, output, batch, words)


def continued(model: generation.Verbs, text: str, target: str | None, search: Mapping[str, Any]) -> TextWithOutput:
    """A prompt and its continuation by a language model."""
    prompt = model.reader.prompt(text if target is None else text + target)
    if target is None:
        continuation, config = prompt_to_search(model, text, search)
        ((found, *_),) = model.ask([continuation], config, None)
        said, labels = list(found.tokens), list(found.labels(EOS))
        first, output = len(prompt.ids) - 1, continuation_output(model, continuation, found)
    elif search:
        raise UserError("options of the search have no effect on a given target", todo="leave one of them out")
    else:
        said, labels, output = [], [EOS], target
        first = min(len(model.reader.prompt(text).ids), len(prompt.ids)) - 1
    ids = [*prompt.ids, *labels]
    if model.reader.context is not None and len(ids) - 1 > model.reader.context:
        raise UserError(
            f"the text has {len(ids) - 1} tokens, but the model reads {model.reader.context}", todo="give less of it"
        )
    tokens, lengths = pad_rows([ids[:-1]])
    whole, _ = pad_rows([[EOS if token == BOS else token for token in ids[1:]]])
    batch = Batch(tokens=tokens, lengths=lengths, labels=whole).to(model.device)
    lines = [*prompt.lines[:-1], (*prompt.lines[-1], *said)]
    spoken = Words((), ())
    for number, line in enumerate(lines):
        words = words_said(model.tokenizer, line)
        owners = [None if owner is None else owner + len(spoken.words) for owner in words.owners]
        between = (None,) if number else ()
        spoken = Words((*spoken.words, *words.words), (*spoken.owners, *between, *owners))
    count = len(ids) - 1
    words_of: dict[Side, Words] = {
        "said": padded(spoken, 0, count - len(spoken.owners)),
        "read": padded(spoken, 1, 0, most=count),
    }
    return TextWithOutput(text, output, batch, words_of, first)


def searching(model: Any) -> Any:
    """The verbs of a loaded model that searches for its outputs; other models are refused."""
    if isinstance(model, autoencoding.Verbs) and autoencoding.is_sequential(model.model):
        return model.translator
    if not isinstance(model, translator.Verbs | generation.Verbs):
        name = model.task_name.replace("_", " ")
        kind = type(model.model.model if isinstance(model.model, Headed) else model.model)
        raise UserError(
            f"a run for {name} with {kind.__name__} searches for no output",
            todo="mallang choose RUN … --paths" if isinstance(model, ShowsPaths) else "use an autoregressive model",
        )
    return model


def is_searching(model: Any) -> bool:
    """Whether a loaded model searches for outputs."""
    try:
        searching(model)
    except UserError:
        return False
    return True


def refuse_domain(domain: str | None) -> None:
    """Refuse a domain: it is a tag before a source text, and this model has none."""
    if domain is not None:
        raise UserError(f"domain {domain} has no effect: this model has no source text", todo="leave it out")


def prompt_to_search(model: generation.Verbs, text: str, search: Mapping[str, Any]) -> tuple[Continuation, Config]:
    """A prompt to continue, and the search options: one line, limited by the model's context."""
    prompt = model.reader.prompt(text)
    if model.reader.context is not None and len(prompt.ids) >= model.reader.context:
        raise UserError(
            f"the prompt has {len(prompt.ids)} tokens, but the model reads fewer than {model.reader.context} at once",
            todo="give less of it",
        )
    return Continuation(prompt, 0), change_search(model.config, dict(search))


def continuation_output(model: generation.Verbs, continuation: Continuation, found: Hypothesis) -> str:
    """The generated text after a prompt."""
    return replace(continuation, lines=[list(found.tokens)]).output(model.tokenizer)


def read(model: Any, text: str, tag: Sequence[int]) -> tuple[Batch, Words]:
    """The batch of a source text without output, and the words of its tokens."""
    encoding = model.task.source.encode(text)
    if not text.strip() or not encoding.ids:
        raise UserError("an empty text cannot be inspected", todo="give a text with a word in it")
    check_length(model, len(encoding.ids))
    source, lengths = pad_rows([[*tag, *encoding.ids, EOS]])
    start = torch.full((1, 1), BOS)
    batch = Batch(tokens=start, lengths=torch.ones_like(lengths), source=source, source_lengths=lengths)
    return batch, padded(words_in(text, encoding.offsets), len(tag), 1)


def check_length(model: Any, tokens: int) -> None:
    """Refuse a text that is longer than the model's maximum length."""
    if model.max_length and tokens >= model.max_length:
        raise UserError(
            f"the text has {tokens} tokens, but the model reads fewer than {model.max_length} at once",
            todo="give it sentence by sentence",
        )


def words_in(text: str, offsets: Sequence[tuple[int, int]]) -> Words:
    """The words of a text, split at spaces, and the word that contains each token, by the tokens' offsets.

    A space belongs to the word after it, as it does in the pieces of BPE.
    """
    spans = [found.span() for found in re.finditer(r"\S+", text)]
    owners: list[int | None] = []
    for begin, end in offsets:
        # A token without an extent, such as a jamo of a syllable that an earlier token covers, lies at its end.
        place = min(begin, end - 1)
        owners.append(next((number for number, span in enumerate(spans) if span[1] > place), len(spans) - 1))
    return Words(tuple(text[begin:end] for begin, end in spans), tuple(owners) if spans else (None,) * len(offsets))


def words_said(tokenizer: Tokenizer, ids: Sequence[int]) -> Words:
    """The words of an output and their tokens; a search may split words as no tokenizer would."""
    ends = [len(tokenizer.decode(ids[:count])) for count in range(len(ids) + 1)]
    return words_in(tokenizer.decode(ids), [(ends[place], ends[place + 1]) for place in range(len(ids))])


def padded(words: Words, before: int, after: int, most: int | None = None) -> Words:
    """The words with `before` and `after` extra tokens that are part of no word, truncated to `most` tokens."""
    owners = (*(None,) * before, *words.owners, *(None,) * after)
    return Words(words.words, owners[:most])
