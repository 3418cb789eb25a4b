"""Several corpora with domains, from the command that trains on them to those that use the tags."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from commands.running import TINY, mallang, write_corpus
from mallang.data.corpus import Member, Rows
from mallang.errors import UserError
from mallang.inspection import outputs


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that was trained on the same sentences twice: as they are, and, in the domain loud, in capitals."""
    folder = tmp_path_factory.mktemp("domains")
    write_corpus(folder)
    for name in ("train", "valid"):
        rows = [line.split("\t") for line in (folder / f"{name}.tsv").read_text("utf-8").splitlines()]
        text = "".join(f"{source}\t{target.upper()}\n" for source, target in rows)
        folder.joinpath(f"{name}.loud.tsv").write_text(text, "utf-8")
    ended = mallang(
        "train", "transformer", *(each for each in TINY if not each.startswith("data.train")),
        'data.corpora={"train.tsv" = 1, "train.loud.tsv" = 1.5}', 'data.domains={"train.loud.tsv" = "loud"}',
        "train.steps=250", "train.validate_every=250", "text.vocabulary=200", "train.workers=2", cwd=folder,
    )  # fmt: skip
    assert ended.code == 0, ended.err
    assert "train.loud.tsv: 200 read" in ended.err
    assert "read 1.5 times an epoch\n  domain: loud" in ended.err
    return folder


RUN = Path("runs", "transformer")
TEXT = "민수는 물을 산다."


def test_a_domain_is_chosen(home: Path) -> None:
    plain, loud = (
        mallang("translate", RUN, TEXT, "--search", "method=greedy", *given, cwd=home).out
        for given in ((), ("--domain", "loud"))
    )
    assert loud.isupper() and loud == plain.upper()
    assert not plain.isupper()


def test_python_chooses_too(home: Path) -> None:
    from mallang import load

    model = load(home / RUN, "cpu")
    texts = [TEXT, TEXT, f"<loud> {TEXT}"]
    outputs = [str(each) for each in model.translate(texts, domain=["loud", None, None], method="greedy")]
    assert [output.isupper() for output in outputs] == [True, False, False]  # text cannot spell a tag
    pair = (TEXT, outputs[0])
    loud, plain = model.score([pair], domain="loud")[0], model.score([pair])[0]
    assert loud.score > plain.score + 1
    best = model.translate(TEXT, domain="loud", method="greedy")
    assert best.score == pytest.approx(loud.score, abs=1e-4)


def test_scoring_takes_a_domain(home: Path) -> None:
    scores = [
        float(mallang("score", RUN, TEXT, "MINSU BUYS WATER.", *given, cwd=home).out)
        for given in ((), ("--domain", "loud"))
    ]
    assert scores[1] > scores[0] + 1


def test_an_unknown_domain_is_told(home: Path) -> None:
    for verb, texts in (("translate", (TEXT,)), ("score", (TEXT, "x"))):
        ended = mallang(verb, RUN, *texts, "--domain", "lout", cwd=home)
        assert ended.code == 2
        assert "there is no domain 'lout'; there are loud" in ended.err
        assert "did you mean loud?" in ended.err
        assert not ended.out


def test_a_run_without_domains_says_so(run: Path) -> None:
    ended = mallang("translate", run, TEXT, "--domain", "loud", cwd=run.parent)
    assert ended.code == 2
    assert "without domains" in ended.err


def test_ones_own_pairs_in_a_domain(home: Path) -> None:
    """The same pairs with and without the tag."""
    found = {}
    for domain in ("loud", "none"):
        ended = mallang(
            "evaluate", RUN, "--data", "valid.loud.tsv", "--domain", domain, "--json", "--search", "method=greedy",
            cwd=home,
        )  # fmt: skip
        assert ended.code == 0, ended.err
        found[domain] = {score["name"]: score["value"] for score in json.loads(ended.out)}
    assert found["loud"]["BLEU"] > found["none"]["BLEU"] + 10


def test_the_parts_to_score(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    members = [
        Member(name, Rows.of([(name, name)], ("source", "target")), 1.0, domain)
        for name, domain in (("news", None), ("books/bible", "bible"))
    ]
    rows = Rows.joined(members, ("source", "target"))
    monkeypatch.setattr(outputs, "open_rows", lambda run, split, data, columns=None: (rows, split))
    news, bible = outputs.read_parts(tmp_path, "test", None, None)
    assert (news.name, news.rows, news.domain) == ("news-test", [("news", "news")], None)
    assert (bible.name, bible.corpus, bible.domain) == ("books-bible-test", "books/bible", "bible")
    assert outputs.read_parts(tmp_path, "test", None, "books/bible") == [bible]
    assert outputs.read_rows(tmp_path, "test", None) == ([*news.rows, *bible.rows], "test")
    with pytest.raises(UserError, match="no corpus 'books'"):
        outputs.read_parts(tmp_path, "test", None, "books")
    monkeypatch.setattr(outputs, "open_rows", lambda run, split, data, columns=None: (members[0].rows, split))
    assert [part.name for part in outputs.read_parts(tmp_path, "test", None, None)] == ["test"]
    with pytest.raises(UserError, match="only one corpus"):
        outputs.read_parts(tmp_path, "test", None, "news")


@pytest.mark.slow
def test_each_corpus_is_scored_by_itself(tmp_path: Path) -> None:
    ended = mallang(
        "train", "transformer", "model.size=tiny", "data.corpora={miniworld = 0.05}",
        'data.domains={miniworld = "mini"}', "train.steps=2", "train.validate_every=2",
        "text.vocabulary=400", "train.workers=0", "decoding.max_length=3",
        cwd=tmp_path,
    )  # fmt: skip
    assert ended.code == 0, ended.err
    ended = mallang("evaluate", RUN, "--search", "method=greedy", cwd=tmp_path)
    assert ended.code == 0, ended.err
    assert "1000 pairs of miniworld-test as domain mini" in ended.err
    assert all(line.startswith("miniworld: ") for line in ended.out.splitlines())
    kept = json.loads((tmp_path / RUN / "scores" / "miniworld-test.json").read_text("utf-8"))
    assert kept["search"] == {"method": "greedy", "domain": "mini"}
    ended = mallang("evaluate", RUN, "--corpus", "minworld", cwd=tmp_path)
    assert ended.code == 2
    assert "did you mean miniworld?" in ended.err


def test_a_run_to_start_from_must_know_the_domains(home: Path) -> None:
    given = [each for each in TINY if not each.startswith(("data.train", "text."))]
    ended = mallang(
        "train", "transformer", *given, "text.vocabulary=200", 'data.corpora={"train.tsv" = 1}',
        'data.domains={"train.tsv" = "soft"}', "train.steps=1", "--from", RUN, "--name", "soft", cwd=home,
    )  # fmt: skip
    assert ended.code == 2
    assert "there is no domain 'soft'; there are loud" in ended.err
