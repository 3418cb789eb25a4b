"""GPT-2 folders of `transformers`: imported they say the same, exported they are loaded again."""

import json
import shutil
import sys
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
import safetensors.torch
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

import mallang
from mallang.commands.main import main
from mallang.data.batch import Batch
from mallang.data.columns import LabelSet
from mallang.errors import UserError
from mallang.find import find
from mallang.interop import huggingface
from mallang.layers.attention import record_attention
from mallang.tasks import classification

transformers = pytest.importorskip("transformers")
QUICK = ("data.train=train.tsv", "data.valid=train.tsv", "train.epochs=none", "train.steps=2", "train.workers=0")
TEXTS = ["the cat sat on the mat", "나는 물을 마신다.", "a  <s> b\nc 👍", ""]


@pytest.fixture(scope="module")
def theirs(tmp_path_factory):
    """A small GPT-2 with random weights, and a tokenizer with <|endoftext|> as its last token, as in the real one."""
    folder = tmp_path_factory.mktemp("theirs")
    backend = Tokenizer(models.BPE())
    backend.pre_tokenizer, backend.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=300, initial_alphabet=sorted(alphabet), show_progress=False)
    backend.train_from_iterator(TEXTS * 3, trainer)
    backend.add_special_tokens([huggingface.END])
    backend.save(str(folder / "tokenizer.json"))
    words = backend.get_vocab_size()
    torch.manual_seed(1)
    config = transformers.GPT2Config(
        vocab_size=words, n_positions=32, n_embd=16, n_layer=2, n_head=2, bos_token_id=words - 1, eos_token_id=words - 1
    )
    model = transformers.GPT2LMHeadModel(config).eval()
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    model.save_pretrained(folder)
    return folder


@contextmanager
def keeping(blocks):
    """While it lasts, the outputs of all blocks are kept in a list; every block keeps its last input as `seen`."""
    found = []
    hooks = [block.register_forward_hook(lambda _, __, output: found.append(output)) for block in blocks]
    hooks += [block.register_forward_pre_hook(lambda own, given: setattr(own, "seen", given[0])) for block in blocks]
    try:
        yield found
    finally:
        for hook in hooks:
            hook.remove()


def imported(theirs, tmp_path):
    huggingface.import_gpt2(theirs, tmp_path / "run")
    return mallang.load(tmp_path / "run", device="cpu")


@torch.no_grad()
def test_an_imported_model_says_the_same(theirs, tmp_path):
    verbs, reference = imported(theirs, tmp_path), transformers.GPT2LMHeadModel.from_pretrained(theirs).eval()
    backend = Tokenizer.from_file(str(theirs / "tokenizer.json"))
    end = backend.token_to_id(huggingface.END)
    assert verbs.task.text.vocabulary.tokens[4:] == tuple(sorted(backend.get_vocab(), key=backend.token_to_id))[:end]
    for text in TEXTS:
        ids, ours = backend.encode(text).ids, verbs.task.text.encode(text).ids
        assert [number - 4 for number in ours] == ids
        assert verbs.task.text.decode(ours) == text
        batch = Batch(tokens=torch.tensor([[2, *ours]]), lengths=torch.tensor([len(ours) + 1]))
        found = verbs.model.output(verbs.model(batch)).log_softmax(-1)
        expected = reference(torch.tensor([[end, *ids]])).logits.log_softmax(-1)
        torch.testing.assert_close(found[..., 4:], expected[..., :end], atol=1e-5, rtol=1e-5)
        torch.testing.assert_close(found[..., 3], expected[..., end], atol=1e-5, rtol=1e-5)
        assert (found[..., :3] < -1e6).all()


@torch.no_grad()
def test_hidden_states_and_attentions_are_those_of_transformers(theirs, tmp_path):
    """Of a padded batch, at every real position of every layer, with the positions given there or not."""
    verbs = imported(theirs, tmp_path)
    reference = transformers.GPT2LMHeadModel.from_pretrained(theirs, attn_implementation="eager").eval()
    end = reference.config.eos_token_id
    rows = [verbs.task.text.encode(text).ids for text in TEXTS]
    lengths = torch.tensor([len(row) + 1 for row in rows])
    ours = torch.nn.utils.rnn.pad_sequence([torch.tensor([2, *row]) for row in rows], batch_first=True, padding_value=0)
    batch = Batch(tokens=ours, lengths=lengths)
    assert len(set(lengths.tolist())) > 2 and min(lengths) == 1  # the last text is empty
    mask = batch.mask
    given = torch.where(mask & (ours != 2), ours - 4, end)
    positions = torch.arange(ours.shape[1])[None].expand_as(ours)
    with record_attention(verbs.model) as maps, keeping(verbs.model.decoder) as layers:
        hidden = verbs.model(batch)
    for more in ({}, {"position_ids": positions}):
        asked = {"output_hidden_states": True, "output_attentions": True, "attention_mask": mask.long(), **more}
        expected = reference(given, **asked)
        assert len(expected.hidden_states) == len(layers) + 1 == len(expected.attentions) + 1
        for found, wanted in zip([*layers[:-1], hidden], expected.hidden_states[1:], strict=True):
            torch.testing.assert_close(found[mask], wanted[mask], atol=1e-5, rtol=1e-5)
        first = verbs.model.decoder[0].seen
        torch.testing.assert_close(first[mask], expected.hidden_states[0][mask], atol=1e-5, rtol=1e-5)
        for layer, weights in enumerate(expected.attentions):
            found = maps[f"decoder.{layer}.self"].transpose(1, 2)[mask]
            torch.testing.assert_close(found, weights.transpose(1, 2)[mask], atol=1e-5, rtol=1e-5)
        logits, wanted = verbs.model.output(hidden)[mask], expected.logits[mask]
        logits = torch.cat((logits[:, 4:], logits[:, 3:4]), dim=1)
        torch.testing.assert_close(logits.log_softmax(-1), wanted.log_softmax(-1), atol=1e-5, rtol=1e-5)


def test_what_was_imported_goes_back_unchanged(theirs, tmp_path):
    huggingface.export_gpt2(imported(theirs, tmp_path), tmp_path / "back")
    before, after = (
        safetensors.torch.load_file(folder / "model.safetensors") for folder in (theirs, tmp_path / "back")
    )
    assert before.keys() == after.keys()
    assert all(torch.equal(before[name], after[name]) for name in before)
    ours, other = (Tokenizer.from_file(str(folder / "tokenizer.json")) for folder in (tmp_path / "back", theirs))
    assert ours.get_vocab() == other.get_vocab()
    assert json.loads((tmp_path / "back" / "config.json").read_text())["eos_token_id"] == other.get_vocab_size() - 1


def test_a_model_trained_here_is_loaded_there(tmp_path, monkeypatch):
    verbs = trained(tmp_path, monkeypatch)
    huggingface.export_gpt2(verbs, tmp_path / "out")
    reference = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "out").eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "out")
    ids = tokenizer("나는 물을", add_special_tokens=False)["input_ids"]
    assert ids == verbs.task.text.encode("나는 물을").ids
    assert (tokenizer.bos_token_id, tokenizer.eos_token_id) == (2, 3)
    batch = Batch(tokens=torch.tensor([[2, *ids]]), lengths=torch.tensor([len(ids) + 1]))
    with torch.no_grad():
        found, expected = verbs.model.output(verbs.model(batch)), reference(batch.tokens).logits
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)
    with pytest.raises(UserError, match="as its one special token") as told:
        huggingface.import_gpt2(tmp_path / "out", tmp_path / "again")
    assert told.value.todo is not None and "is still in its run" in told.value.todo


def trained(tmp_path, monkeypatch, *overrides):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "lines.txt").write_text("나는 물을 마신다.\n나는 책을 읽는다.\n" * 4, "utf-8")
    command(
        monkeypatch, "train", "gpt-miniworld", "--name", "ours", "model.size=tiny", "model.hidden_dim=none",
        "model.biases=none", "text.unit=byte-bpe", "text.vocabulary=270", "data.train=lines.txt",
        "data.valid=lines.txt", "train.epochs=none", "train.steps=2", "-q", *overrides,
    )  # fmt: skip
    return mallang.load(tmp_path / "runs" / "ours", device="cpu")


def command(monkeypatch, *words):
    monkeypatch.setattr("sys.argv", ["mallang", *words])
    with pytest.raises(SystemExit) as left:
        main()
        raise SystemExit(0)
    assert left.value.code in (0, None)


def test_the_commands_import_and_export(theirs, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    command(monkeypatch, "import", str(theirs), "--name", "gpt2")
    assert "runs/gpt2" in capsys.readouterr().out
    command(monkeypatch, "export", "runs/gpt2", "--to", "huggingface", "--output", "back")
    assert {path.name for path in (tmp_path / "back").iterdir()} >= set(huggingface.FILES)
    command(monkeypatch, "generate", "runs/gpt2", "the", "--max-tokens", "4")


def test_what_cannot_be_imported_is_named(theirs, tmp_path):
    for name in huggingface.FILES:
        (tmp_path / name).write_bytes((theirs / name).read_bytes())
    about = json.loads((theirs / "config.json").read_text())
    for change, message in (
        ({"model_type": "llama"}, "'llama', and only 'gpt2'"),
        ({"layer_norm_epsilon": 1e-6}, "layer_norm_epsilon = 1e-06"),
        ({"activation_function": "silu"}, "activation 'silu'"),
        ({"n_head": 3}, "cannot be divided among 3 heads"),
        ({"n_layer": 3}, "the weights do not fit"),
    ):
        (tmp_path / "config.json").write_text(json.dumps({**about, **change}))
        with pytest.raises(UserError, match=message):
            huggingface.import_gpt2(tmp_path, tmp_path / "run")
    (tmp_path / "config.json").write_text(json.dumps(about))
    (tmp_path / "tokenizer.json").write_text('{"model": {"type": "Unigram"}}')
    with pytest.raises(UserError, match="no byte-level BPE"):
        huggingface.import_gpt2(tmp_path, tmp_path / "run")
    (tmp_path / "tokenizer.json").unlink()
    with pytest.raises(UserError, match=r"tokenizer.json is missing"):
        huggingface.import_gpt2(tmp_path, tmp_path / "run")


def test_what_cannot_be_exported_is_named(theirs, tmp_path):
    verbs = imported(theirs, tmp_path)
    with torch.no_grad():
        verbs.model.head.bias[7] = 1.0
    with pytest.raises(UserError, match="has no bias in its output"):
        huggingface.export_gpt2(verbs, tmp_path / "out")
    assert not (tmp_path / "out").exists()


@torch.no_grad()
def test_a_classifier_reads_the_last_token_as_the_one_of_transformers_does(theirs, tmp_path):
    """GPT2ForSequenceClassification with the same weights; the frame of a text is <|endoftext|> at its end."""
    verbs = imported(theirs, tmp_path)
    config = transformers.GPT2Config.from_pretrained(theirs, num_labels=3, pad_token_id=0)
    reference = transformers.GPT2ForSequenceClassification.from_pretrained(theirs, config=config).eval()
    torch.nn.init.normal_(reference.score.weight)
    task = classification.Task(
        classification.Config(), {"text": verbs.task.text}, {"label": LabelSet(("bad", "fine", "good"))}
    )
    model = task.build(find("models", "gpt"), verbs.model.config).eval()
    model.model.load_state_dict(verbs.model.state_dict())
    model.head.linear.weight.copy_(reference.score.weight)
    rows = [np.array(verbs.task.text.encode(text).ids, dtype=np.int64) for text in TEXTS]
    found, _ = task.logits(model, task.collate([(row, np.array([0])) for row in rows]))
    end = reference.config.eos_token_id
    for row, logits in zip(rows, found, strict=True):
        expected = reference(torch.tensor([[*(number - 4 for number in row), end]])).logits[0]
        torch.testing.assert_close(logits, expected, atol=1e-5, rtol=1e-5)


def test_training_starts_from_a_folder_of_theirs_which_is_imported_once(theirs, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    lines = [f"{word} cat\t{label}" for word, label in (("good", "yes"), ("bad", "no")) for _ in range(6)]
    (tmp_path / "train.tsv").write_text("text\tlabel\n" + "\n".join(lines) + "\n", encoding="utf-8")

    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["mallang", "train", "gpt", "task.name=classification", *QUICK, *arguments])
        with pytest.raises(SystemExit) as left:
            main()
        told = capsys.readouterr()
        return left.value.code or 0, " ".join((told.out + told.err).split())

    code, told = run("--from", str(theirs), "--name", "first")
    place = f"runs/{theirs.name}"
    assert code == 0 and f"was imported: the run is in {place}" in told, told
    assert "new rows for <start> <delimiter> <extract>" in told and Path(place, "run.json").exists()
    code, told = run("--from", str(theirs), "--name", "second", "task.lora_rank=2")
    assert code == 0 and "was imported" not in told and Path("runs/second/adapter.safetensors").exists(), told
    other = tmp_path / "other" / theirs.name
    shutil.copytree(theirs, other)
    (other / "config.json").write_text((other / "config.json").read_text() + "\n")
    code, told = run("--from", str(other), "--name", "third")
    assert code == 2 and "is another run than" in told and "--name OTHER" in told, told
    code, told = run("--from", "nobody/nothing", "--name", "fourth")
    assert code == 2 and "no model of that name in" in told and "hf download nobody/nothing" in told, told
