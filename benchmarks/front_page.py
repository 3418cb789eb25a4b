"""The pictures and the tables of README.md and README.ko.md, from results/ and the recipes.

python -m benchmarks.front_page                                    # write all of them again
python -m benchmarks.front_page --run runs/transformer-miniworld   # and draw the attention of that run again

Tables are between `<!-- name: … -->` and `<!-- end -->`. A test compares what is there with what would be written, so
no number in them differs from results/.
"""

from __future__ import annotations

import argparse
import json
import re
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.charts import TIMES, Axis, Point, Points, chart
from benchmarks.front_figures import draw_attention, read_attention
from benchmarks.report import RESULTS, ROOT
from mallang import recipe
from mallang.data import miniworld

FOLDER = ROOT / "docs" / "front"
WEIGHTS = FOLDER / "attention.json"
GLUE = "\u00a0"
"""Between a name and its number, so that no line is broken there."""
LANGUAGES = {"README.md": "en", "README.ko.md": "ko"}
PART = re.compile(r"(<!-- (\w+): [^>]* -->\n).*?(<!-- end -->)", re.DOTALL)


def read(name: str) -> dict[str, object]:
    """One file of results/."""
    found: dict[str, object] = json.loads((RESULTS / f"{name}.json").read_text("utf-8"))
    return found


def value(name: str) -> float:
    """What was measured."""
    return float(str(read(name)["value"]))


def best(pattern: str) -> float:
    """The highest of the values that a pattern names: a peer in the form that suits it best."""
    return max(value(path.stem) for path in RESULTS.glob(f"{pattern}.json"))


def short(number: float) -> str:
    """Three digits that count: 604k, 3.38k, 165."""
    for size, unit in ((1e6, "M"), (1e3, "k")):
        if number >= size:
            return f"{number / size:.3g}{unit}"
    return f"{number:.3g}"


def machine(name: str) -> str:
    """What a value was measured on, in short: H200, 2 × AMD EPYC, 2 × Intel Xeon."""
    hardware = str(read(name)["hardware"])
    if "H200" in hardware:
        return "H200"
    return re.sub(r"\(R\)| Processor.*", "", hardware.partition(",")[0]).replace(" ", GLUE)


@dataclass(frozen=True)
class Row:
    """One line of the table beside others: names of files in results/, and how they are labeled."""

    work: tuple[str, str]
    """What is done, in English and in Korean."""
    ours: Sequence[tuple[str, str]]
    """The label of a value, and the name of its file."""
    others: Sequence[tuple[str, str]]
    """Labels and files of the peers; of the files that a pattern names, the highest value counts."""

    def cells(self, language: str) -> list[str]:
        """The cells of the line, the highest value in bold."""
        highest = max(best(name) for _, name in (*self.ours, *self.others))

        def labeled(said: str, name: str) -> str:
            words = f"{said} {short(best(name))}".strip().replace(" ", GLUE)
            return f"**{words}**" if best(name) == highest else words

        sides = [" · ".join(labeled(*each) for each in side) for side in (self.ours, self.others)]
        return [self.work[language == "ko"], machine(self.ours[0][1]), *sides]


SPEED = (
    Row(
        ("train GPT-2 124M, tokens/s", "GPT-2 124M 학습, 토큰/초"),
        [("FP8", "gpt-training-cuda-32x1024-mallang-compiled-fp8"),
         ("bf16", "gpt-training-cuda-32x1024-mallang-compiled")],
        [("nanoGPT", "gpt-training-cuda-32x1024-nanogpt-compiled"),
         ("Hugging Face", "gpt-training-cuda-32x1024-hugging-face-compiled")],
    ),
    Row(
        ("generate, GPT-2 124M, 1 text, tokens/s", "GPT-2 124M 생성, 1개씩, 토큰/초"),
        [("", "generation-cuda-1-mallang-bfloat16-compiled")],
        [("Hugging Face, static KV cache", "generation-cuda-1-hugging-face-bfloat16-static"),
         ("dynamic", "generation-cuda-1-hugging-face-bfloat16-dynamic")],
    ),
    Row(
        ("the same, 64 texts at once", "같은 모델, 64개씩"), [("", "generation-cuda-64-mallang-bfloat16-compiled")],
        [("Hugging Face, static KV cache", "generation-cuda-64-hugging-face-bfloat16-static"),
         ("dynamic", "generation-cuda-64-hugging-face-bfloat16-dynamic")],
    ),
    Row(
        ("train a 6+6-layer Transformer, tokens/s", "6+6층 트랜스포머 학습, 토큰/초"),
        [("", "training-cuda-mallang-compiled")],
        [("compiled torch.nn.Transformer", "training-cuda-torch.nn.Transformer-compiled-bfloat16"),
         ("Hugging Face Marian", "training-cuda-marian-compiled")],
    ),
    Row(
        ("translate with it, beam 5, tokens/s", "그 모델로 번역, 빔 5, 토큰/초"),
        [("", "decoding-cuda-beam5-mallang-compiled-bfloat16")],
        [("Hugging Face Marian", "decoding-cuda-beam5-marian-bfloat16")],
    ),
    Row(
        ("translate, beam 5, sentences/s", "번역, 빔 5, 문장/초"),
        [("int8", "decoding-cpu-beam5-mallang-int8"), ("float32", "decoding-cpu-beam5-mallang-float32")],
        [("CTranslate2 int8", "decoding-cpu-beam5-ctranslate2-int8-*"),
         ("float32", "decoding-cpu-beam5-ctranslate2-float32-*"),
         ("Hugging Face Marian", "decoding-cpu-beam5-marian-float32")],
    ),
    Row(
        ("translate, greedy, sentences/s", "번역, 그리디, 문장/초"),
        [("int8", "decoding-cpu-greedy-mallang-int8"), ("float32", "decoding-cpu-greedy-mallang-float32")],
        [("CTranslate2 int8", "decoding-cpu-greedy-ctranslate2-int8-*"),
         ("float32", "decoding-cpu-greedy-ctranslate2-float32-*"),
         ("Hugging Face Marian", "decoding-cpu-greedy-marian-float32")],
    ),
    Row(
        ("generate, GPT-2 124M, tokens/s", "GPT-2 124M 생성, 토큰/초"),
        [("int8", "generation-cpu-1-mallang-int8"), ("float32", "generation-cpu-1-mallang-float32")],
        [("CTranslate2 int8", "generation-cpu-1-ctranslate2-int8-*"),
         ("float32", "generation-cpu-1-ctranslate2-float32-*"),
         ("Hugging Face", "generation-cpu-1-hugging-face-float32")],
    ),
    Row(
        ("train on Multi30k, tokens/s", "Multi30k 학습, 토큰/초"),
        [("", "epoch-mallang")], [("JoeyNMT", "epoch-joeynmt")],
    ),
    Row(
        ("estimate trigrams, words/s", "트라이그램 추정, 단어/초"),
        [("in process", "ngram-mallang"), ("two commands", "ngram-mallang-train-and-export")],
        [("KenLM, lmplz", "ngram-kenlm-lmplz")],
    ),
    Row(
        ("score with trigrams, tokens/s", "트라이그램 채점, 토큰/초"),
        [("ids", "ngram-mallang-from-ids"), ("strings", "ngram-mallang-from-strings")],
        [("KenLM, strings", "ngram-kenlm-score")],
    ),
)  # fmt: skip


@dataclass(frozen=True)
class System:
    """One line of the model zoo."""

    name: str
    file: str
    """In src/mallang/models."""
    recipe: str
    result: str
    """The name of its file in results/."""
    paper: str = ""
    """Where the recipe names another one than the model's own."""
    greedy: str = ""
    """The name of its file with greedy search, where the published value was measured so."""


BLEU, PPL = "test2016-moses-lc-tok-seed1", "test-word-seed1"
GREEDY = "test2016-greedy-moses-lc-tok-seed1"
TRANSLATION = (
    System("Word by word (IBM model 1)", "lexicon", "lexicon-multi30k", f"lexicon-multi30k-en-de-{BLEU}"),
    System("Sutskever: deep LSTMs", "sutskever", "sutskever-multi30k", f"sutskever-multi30k-en-de-{BLEU}"),
    System("Cho: GRU encoder-decoder", "cho", "cho-multi30k", f"cho-multi30k-en-de-{BLEU}"),
    System(
        "Bahdanau attention", "bahdanau", "bahdanau-multi30k", f"bahdanau-multi30k-en-de-{BLEU}",
        greedy=f"bahdanau-multi30k-en-de-{GREEDY}",
    ),
    System(
        "Luong attention, general", "luong", "luong-multi30k", f"luong-general-multi30k-en-de-{BLEU}",
        greedy=f"luong-general-multi30k-en-de-{GREEDY}",
    ),
    System("ConvS2S", "convs2s", "convs2s-multi30k", f"convs2s-multi30k-en-de-{BLEU}"),
    System(
        "Transformer", "transformer", "transformer-multi30k-en-de", f"transformer-multi30k-en-de-{BLEU}",
        "Vaswani et al. 2017, arXiv:1706.03762",
    ),
)  # fmt: skip
LANGUAGE = (
    System("5-gram, Katz", "ngram", "katz5-ptb", f"katz5-ptb-{PPL}"),
    System("5-gram, Kneser-Ney", "ngram", "kneser-ney5-ptb", f"kneser-ney5-ptb-{PPL}"),
    System("NPLM", "nplm", "nplm-ptb", f"nplm-ptb-{PPL}"),
    System("Elman RNN", "rnn_lm", "elman-ptb", f"elman-ptb-{PPL}"),
    System("Gated CNN", "conv_lm", "conv-ptb", f"conv-ptb-{PPL}"),
    System("LSTM, medium", "rnn_lm", "lstm-medium-ptb", f"lstm-medium-ptb-{PPL}"),
    System("LSTM, large", "rnn_lm", "lstm-large-ptb", f"lstm-large-ptb-{PPL}"),
    System("Character-aware, small", "char_aware", "char-aware-small-ptb", f"char-aware-small-ptb-{PPL}"),
    System("Character-aware, large", "char_aware", "char-aware-large-ptb", f"char-aware-large-ptb-{PPL}"),
    System("AWD-LSTM", "rnn_lm", "awd-lstm-ptb", f"awd-lstm-ptb-{PPL}"),
    System("GPT", "gpt", "gpt-ptb", f"gpt-ptb-{PPL}"),
    System("Modern GPT", "modern_gpt", "modern-gpt-ptb", f"modern-gpt-ptb-{PPL}"),
    System("GPT, characters", "gpt", "gpt-shakespeare", "gpt-shakespeare-valid-nats-seed1"),
)
UNDERSTANDING = (
    System(
        "Bag of character n-grams, NSMC", "bag_of_words", "bag-of-words-nsmc", "bag-of-words-nsmc-test-accuracy-seed1"
    ),
    System(
        "BiLSTM + hashed bag, NSMC",
        "rnn_classifier",
        "rnn-classifier-bag-nsmc",
        "rnn-classifier-bag-nsmc-test-accuracy-seed1",
    ),
    System("CNN, YNAT", "cnn", "cnn-klue-ynat", "cnn-klue-ynat-test-accuracy-seed1"),
    System("CNN, TREC", "cnn", "cnn-trec", "cnn-trec-test-accuracy-seed1"),
    System("HAN, IMDb", "han", "han-imdb", "han-imdb-test-accuracy-seed1"),
    System("LSTM-CRF, CoNLL-2003", "lstm_crf", "lstm-crf-conll2003", "lstm-crf-conll2003-test-span-f1-seed1"),
    System(
        "the same with GloVe", "lstm_crf", "lstm-crf-glove-conll2003", "lstm-crf-glove-conll2003-test-span-f1-seed1"
    ),
    System("LSTM-CRF, KMOU", "lstm_crf", "lstm-crf-kmou-ner", "lstm-crf-kmou-ner-test-span-f1-seed1"),
)
LINEAR = {"nsmc": 87.6, "klue/ynat": 85.8, "trec": 88.8, "imdb-subset": 89.1, "conll2003": 83.3, "kmou-ner": 77.2}
"""What linear models reach on the same splits: of scikit-learn on n-grams, a CRF with hand-made features on tags."""
HEADS: dict[str, dict[str, list[str]]] = {
    "en": {
        "speed": ["measured side by side", "on", "Mallang", "others"],
        "zoo": ["model", "paper", "recipe", "ours", "published", "training"],
        "understanding": ["model and corpus", "paper", "recipe", "ours", "linear", "training"],
    },
    "ko": {
        "speed": ["나란히 잰 것", "장비", "말랑", "비교 대상"],
        "zoo": ["모델", "논문", "레시피", "말랑", "공개된 값", "학습 시간"],
        "understanding": ["모델과 말뭉치", "논문", "레시피", "말랑", "선형 모델", "학습 시간"],
    },
}


def table(head: Sequence[str], rows: Sequence[Sequence[str]], numbers: int = 0) -> str:
    """A table in Markdown; the last columns hold numbers."""
    rule = "|---" * (len(head) - numbers) + "|---:" * numbers + "|"
    return "\n".join([f"| {' | '.join(head)} |", rule, *(f"| {' | '.join(row)} |" for row in rows)]) + "\n"


def speed(language: str) -> str:
    """Our speed beside that of others, each line measured in one run on one machine."""
    return table(HEADS[language]["speed"], [row.cells(language) for row in SPEED])


def zoo(systems: Sequence[System], language: str) -> str:
    """Every model with its paper, its recipe, our value and the published one."""
    return table(HEADS[language]["zoo"], [zoo_row(system) for system in systems], numbers=3)


def zoo_row(system: System) -> list[str]:
    """One model."""
    published = read(system.greedy or system.result)["published"]
    beside = f" · greedy{GLUE}{ours(system.greedy)}" if system.greedy else ""
    return [
        f"[{system.name}](src/mallang/models/{system.file}.py)",
        cited(system.paper or recipe.read(system.recipe).resolved()["paper"]),
        f"`{system.recipe}`",
        f"{ours(system.result)}{beside}",
        "–" if published is None else f"{'greedy' * bool(system.greedy)} {published}".strip().replace(" ", GLUE),
        duration(system.result),
    ]


def understanding(language: str) -> str:
    """Classifiers and taggers, each beside a linear model on the same split."""
    rows = []
    for system in UNDERSTANDING:
        name, paper, recipe_name, measured, _, trained = zoo_row(system)
        rows.append([name, paper, recipe_name, measured, str(LINEAR[str(read(system.result)["corpus"])]), trained])
    return table(HEADS[language]["understanding"], rows, numbers=3)


def seeds_of(name: str) -> list[float]:
    """The values of all seeds of a result, whose name ends in that of the first."""
    files = sorted(RESULTS.glob(f"{name.removesuffix('-seed1')}-seed*.json")) if name.endswith("-seed1") else []
    return [float(json.loads(path.read_text("utf-8"))["value"]) for path in files] or [value(name)]


def mean_of(name: str) -> float:
    """The mean over seeds, to two digits; a single value as it is."""
    found = seeds_of(name)
    return found[0] if len(found) == 1 else round(statistics.mean(found), 2)


def ours(name: str) -> str:
    """The mean over seeds, ± the standard deviation where there are several."""
    found = seeds_of(name)
    if len(found) == 1:
        return f"{value(name)}"
    digits = 4 if "nats" in str(read(name)["metric"]) else 2
    return f"{statistics.mean(found):.{digits}f}{GLUE}±{GLUE}{statistics.stdev(found):.{digits}f}"


def minutes(name: str) -> float:
    """Minutes of training; of several seeds those of the first."""
    return float(str(read(name)["seconds"])) / 60


def duration(name: str) -> str:
    """The time of training in words, and the machine where it is no GPU."""
    took, hardware = minutes(name), str(read(name)["hardware"])
    said = f"{took * 60:.2g}{GLUE}s" if took < 1 else f"{took:.1f}{GLUE}min"
    return said if "H200" in hardware else f"{said}, CPU"


def cited(paper: str) -> str:
    """Authors and year, with a link where there is an arXiv number."""
    names = re.sub(r"^(.*? \d{4}).*", r"\1", paper)
    number = re.search(r"arXiv:(\d{4}\.\d{4,5})", paper)
    return f"[{names}](https://arxiv.org/abs/{number[1]})" if number else names


def generations() -> str:
    """The figure: quality against minutes."""
    drawn = {"Kneser-Ney 5-gram": 1, "NPLM": 2, "Elman RNN": 3, "Gated CNN": 4, "LSTM": 6, "AWD-LSTM": 9, "GPT": 10}
    left = {"NPLM", "Elman RNN", "GPT", "LSTM", "Modern GPT", "AWD-LSTM"}
    models = [(name, LANGUAGE[place]) for name, place in (drawn | {"Modern GPT": 11}).items()]
    language = [
        Point(name, system.recipe, minutes(system.result), mean_of(system.result), name in left)
        for name, system in models
    ]
    names = ("Word by word", "Sutskever", "Cho", "Bahdanau", "Luong", "ConvS2S", "Transformer")
    translation = [
        Point(
            name,
            system.recipe,
            minutes(system.result),
            mean_of(system.result),
            is_left=name not in ("Word by word", "Luong"),
        )
        for name, system in zip(names, TRANSLATION, strict=True)
    ]
    across = Axis(0.013, 45, TIMES, is_log=True)
    perplexity = Axis(155, 52, [(each, str(each)) for each in (140, 120, 100, 80, 60)])
    bleu = Axis(12, 45, [(each, str(each)) for each in (20, 30, 40)])
    fields = [
        Points("Language models", "Penn Treebank, test perplexity; up is better", language, across, perplexity),
        Points("Translation", "Multi30k English to German, BLEU; up is better", translation, across, bleu),
    ]
    return chart(fields, "Quality of every model against minutes of training")


def attention() -> str:
    """The picture of attention, from the stored weights."""
    return draw_attention(json.loads(WEIGHTS.read_text("utf-8")))


TABLES: dict[str, Callable[[str], str]] = {
    "speed": speed,
    "translation": lambda language: zoo(TRANSLATION, language),
    "language": lambda language: zoo(LANGUAGE, language),
    "understanding": understanding,
}
PICTURES: dict[str, Callable[[], str]] = {"attention.svg": attention, "generations.svg": generations}


def filled(page: str, language: str) -> str:
    """A page with its tables written again."""
    return PART.sub(lambda found: found[1] + TABLES[found[2]](language) + found[3], page)


def main() -> None:
    """The command."""
    whole = argparse.ArgumentParser(prog="python -m benchmarks.front_page", description=__doc__)
    whole.add_argument("--run", type=Path, help="the run that `mallang demo` trains: look at its attention again")
    run = whole.parse_args().run
    FOLDER.mkdir(parents=True, exist_ok=True)
    if run is not None:
        maps = read_attention(run, miniworld.EXAMPLES[:3])
        WEIGHTS.write_text(json.dumps(maps, ensure_ascii=False, indent=1) + "\n", "utf-8")
    for name, draw in PICTURES.items():
        (FOLDER / name).write_text(draw(), "utf-8")
    for name, language in LANGUAGES.items():
        page = ROOT / name
        page.write_text(filled(page.read_text("utf-8"), language), "utf-8")


if __name__ == "__main__":
    main()
