"""What the protocols of models/contract.py promise, checked for every model that declares them."""

from __future__ import annotations

from dataclasses import replace
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import nn

from contracts.test_models import close, some_text
from contracts.tiny_models import build
from mallang import schema
from mallang.data.batch import Batch, pad_rows
from mallang.data.streams import packed_batch
from mallang.decoding.contract import Autoregressive
from mallang.errors import UserError
from mallang.find import find, names
from mallang.layers.encoded import Encoded
from mallang.layers.head import OutputProjection
from mallang.layers.stateful import Stateful
from mallang.layers.words import SharedEmbedding
from mallang.models import contract
from mallang.tasks import contract as tasks
from mallang.text.vocabulary import BOS, EOS, PAD

NAMES = names("models")
TASKS = schema.names("task")
WORDS = 13
every_task = pytest.mark.parametrize("name", TASKS)


def declaring(protocol: Any) -> pytest.MarkDecorator:
    """The models that declare a protocol; a protocol that none declares is of no use."""
    found = [name for name in NAMES if isinstance(build(name, WORDS), protocol)]
    assert found, f"no model declares {protocol.__name__}"
    return pytest.mark.parametrize("name", found)


@pytest.mark.parametrize("name", NAMES)
def test_every_model_file_declares_its_task_and_whether_it_reads_a_source(name: str) -> None:
    module, model = find("models", name), build(name, WORDS)
    assert module.TASK in TASKS and "tiny" in module.SIZES
    assert type(module.Model.reads_source) is bool
    assert isinstance(model, contract.Configured) and isinstance(model, contract.SourceReader)
    # The vocabulary of the source is kept under its name by whoever reads one, and by nobody else.
    assert ("source_vocabulary" in vars(model)) == model.reads_source


@declaring(contract.Bounded)
@torch.no_grad()
def test_a_bounded_model_reads_its_longest_text_and_refuses_a_longer_one(name: str) -> None:
    model = build(name, WORDS)
    if model.longest is None:
        pytest.skip("its tiny size has no limit")
    for length in (model.longest, model.longest + 1):
        tokens, lengths = torch.full((1, length), BOS), torch.tensor([length])
        source, of_source = torch.tensor([[4, EOS]]), torch.tensor([2])
        batch = Batch(tokens=tokens, lengths=lengths, source=source, source_lengths=of_source)
        if length == model.longest:
            assert model(batch).shape[1] == length
        else:
            with pytest.raises(UserError, match=str(model.longest)):
                model(batch)


@declaring(contract.Segmented)
@torch.no_grad()
def test_packed_documents_do_not_see_each_other(name: str) -> None:
    model = build(name, WORDS)
    assert model.reads_segments is True
    first, second = [BOS, 5, 6, 7], [BOS, 8, 9]
    both = packed_batch([[(torch.tensor(row).numpy(), torch.tensor(row).numpy()) for row in (first, second)]])
    tokens, lengths = pad_rows([first, second])
    alone = model(Batch(tokens=tokens, lengths=lengths))
    together = model(both)
    close(together[0, :4], alone[0, :4])
    close(together[0, 4:7], alone[1, :3])


@declaring(contract.Encoder)
@torch.no_grad()
def test_an_encoder_gives_one_vector_per_text(name: str) -> None:
    text, model = some_text(WORDS), build(name, WORDS)
    encoded, batch = model.encode(text.batch()), text.batch()
    assert isinstance(encoded, Encoded) and len(encoded.pooled) == len(text) and encoded.pooled.ndim == 2
    assert encoded.mask.tolist() == (batch.source_mask if model.reads_source else batch.mask).tolist()
    assert all(layer.shape[:2] == encoded.mask.shape for layer in encoded.layers)


@declaring(contract.HiddenStates)
@torch.no_grad()
def test_hidden_states_begin_with_the_vectors_and_end_with_what_forward_gives(name: str) -> None:
    model, batch = build(name, WORDS), some_text(WORDS).batch()
    states = model.hidden_states(batch.tokens)
    assert len(states) > 1
    close(states[0], model.input_embedding()(batch.tokens))
    close(states[-1], model(batch))


@declaring(contract.InputEmbedding)
def test_the_input_embedding_has_a_vector_for_every_token_that_is_read(name: str) -> None:
    model = build(name, WORDS)
    table = model.input_embedding()
    read = model.source_vocabulary if model.reads_source else model.vocabulary
    assert isinstance(table, nn.Embedding) and len(table.weight) == len(read)
    before = model(some_text(WORDS).batch()).detach()
    with torch.no_grad():
        table.weight.add_(1.0)
    assert not torch.equal(model(some_text(WORDS).batch()), before), "the model does not read this table"


@declaring(SharedEmbedding)
def test_a_shared_embedding_has_the_spelling_of_every_row_that_is_no_special_token(name: str) -> None:
    model = build(name, WORDS)
    table, spellings = model.shared_embedding(), model.shared_spellings()
    assert isinstance(table, nn.Embedding) and len(table.weight) == len(spellings)
    specials = model.vocabulary.specials
    words = {token for number, token in enumerate(model.vocabulary.tokens) if number not in specials}
    assert words <= {word for row in spellings for word in row} and spellings.count(()) == len(specials)
    before = model(some_text(WORDS).batch()).detach()
    with torch.no_grad():
        table.weight.add_(1.0)
    assert not torch.equal(model(some_text(WORDS).batch()), before), "the model does not read this table"


@declaring(OutputProjection)
@torch.no_grad()
def test_the_output_projection_is_the_output(name: str) -> None:
    model = build(name, WORDS)
    hidden = model(some_text(WORDS).batch())
    projection = model.output_projection()
    assert projection is not None
    assert torch.equal(projection(hidden), model.output(hidden))
    close(hidden @ projection.weight.T + (0 if projection.bias is None else projection.bias), model.output(hidden))


def test_a_capped_output_is_no_projection() -> None:
    module, vocabulary = find("models", "modern_gpt"), build("modern_gpt", WORDS).vocabulary
    assert module.Model(module.Config(**module.SIZES["tiny"], soft_cap=15.0), vocabulary).output_projection() is None


@declaring(contract.TokenScorer)
@torch.no_grad()
def test_a_token_scorer_gives_what_the_logits_give(name: str) -> None:
    model, batch = build(name, WORDS), some_text(WORDS).batch()
    found = model.token_log_probs(batch)
    expected = model.output(model(batch)).log_softmax(dim=-1).gather(2, batch.labels[:, :, None])[:, :, 0]
    close(found, expected.masked_fill(batch.labels == PAD, 0.0))


@declaring(contract.Normalized)
@torch.no_grad()
def test_what_is_a_probability_sums_to_one(name: str) -> None:
    model, batch = build(name, WORDS), some_text(WORDS).batch()
    assert contract.is_probability(model) is model.is_probability is True
    sums = model.output(model(batch)).exp().sum(dim=-1)[batch.mask]
    close(sums, torch.ones_like(sums))


@declaring(contract.Signed)
def test_a_signature_is_one_line_of_named_parts(name: str) -> None:
    signature = build(name, WORDS).signature
    assert signature and all(":" in part for part in signature.split("|"))


@declaring(Stateful)
@torch.no_grad()
def test_two_windows_with_a_carried_state_equal_one(name: str) -> None:
    model, length = build(name, WORDS), 8
    tokens = torch.randint(4, WORDS, (3, length), generator=torch.Generator().manual_seed(2))
    batch = Batch(tokens=tokens, lengths=torch.full((3,), length))
    close(model.forward_stateful(batch, None).hidden, model(batch))
    halves = [replace(batch, tokens=part, lengths=batch.lengths // 2) for part in tokens.chunk(2, dim=1)]
    first = model.forward_stateful(halves[0], None)
    second = model.forward_stateful(halves[1], first.carry)
    close(torch.cat((first.hidden, second.hidden), dim=1), model(batch))


@every_task
def test_every_task_file_declares_its_parts(name: str) -> None:
    module: ModuleType = find("tasks", name)
    assert isinstance(module.DEFAULTS, dict)
    verbs = module.Verbs
    assert verbs.task_name == name
    assert all(callable(vars(kind).get(verb)) for verb in verbs.verbs for kind in [defining(verbs, verb)])
    assert ("evaluate" in verbs.verbs) == ("evaluate" in dir(verbs)) == ("evaluated" in dir(verbs))
    assert verbs.compared_by in ("outputs", "perplexity", None) or all(map(str, verbs.compared_by))
    assert isinstance(module.Task.columns, tuple) and set(module.Task.metrics.values()) <= {"lower", "higher"}
    assert type(module.Task.open_ended) is bool and isinstance(module.Task.unread, tuple)


def defining(kind: type, name: str) -> type:
    """The class that defines a method."""
    return next(each for each in kind.__mro__ if name in vars(each))


def test_tasks_and_verbs_obey_their_protocols() -> None:
    from contracts.test_inspection import verbs_of

    for name in ("transformer", "gpt", "autoencoder"):
        verbs = verbs_of(name)
        assert isinstance(verbs, tasks.Verbs) and isinstance(verbs.task, tasks.Task), name
        assert isinstance(verbs, tasks.Evaluating) and isinstance(verbs, tasks.Writing)
        rows = [("나는 물을", "나는 물을")[: len(verbs.task.columns)]]
        written = verbs.write_rows(rows, [None])
        assert len(written.sources) == len(written.outputs) == len(written.references) == 1
        assert isinstance(verbs.model, Autoregressive) == (verbs.evaluated != "bags of words")
    assert isinstance(verbs_of("gpt"), tasks.Joining) and not isinstance(verbs_of("autoencoder"), tasks.Joining)
