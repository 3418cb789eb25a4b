"""`mallang inspect`: the attention of a model, the words that decide a label, or a search tree."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from mallang.commands.inspected import (
    read_plain,
    refuse,
    show_attention,
    show_attribution,
    show_trees,
    show_word,
    write_live,
)
from mallang.commands.options import (
    Data,
    Device,
    Domain,
    Json,
    Plugin,
    Quiet,
    RunFolder,
    Search,
    Split,
    Texts,
    add_plugins,
    read_search,
)

EXAMPLES = (
    'mallang inspect runs/transformer-miniworld "유나는 지난주에 배를 탔다."',
    'mallang inspect runs/transformer-miniworld "유나는 지난주에 배를 탔다." --words --out ship.png',
    "mallang inspect runs/transformer-miniworld --file in.txt --out pictures --layer decoder.1.cross --head mean",
    'mallang inspect runs/transformer-miniworld "유나는 지난주에 배를 탔다." --json',
    'mallang inspect runs/transformer-miniworld "유나는 지난주에 배를 탔다." --tree --out tree.png --search beam=3',
    'mallang inspect runs/transformer-miniworld "유나는 지난주에 배를 탔다." --live --out live.html',
    'mallang inspect runs/gpt-miniworld "유나는 지난주에" --words --search method=greedy',
    'mallang inspect runs/han-imdb "Slow at first. The end is great!" --out review.html',
    "mallang inspect runs/han-imdb --word good --split test --out good.png",
    "mallang inspect runs/show-attend-tell-miniworld picture.png --out attention.png",
    'mallang inspect runs/cnn-imdb "Slow at first. The end is great!" --attribution integrated --out review.html',
)
File = Annotated[Path | None, typer.Option("--file", "-f", help="Inspect each line of this file.", show_default=False)]
Out = Annotated[
    Path | None,
    typer.Option(
        "--out", "-o", metavar="PATH", show_default=False,
        help="A .html page, a .png or .svg, or a folder for a .png of each text and layer; else RUN/attention.html.",
    ),
]  # fmt: skip
Layer = Annotated[
    list[str] | None,
    typer.Option("--layer", metavar="NAME", help="Only this layer, decoder.1.cross. Repeatable.", show_default=False),
]
Head = Annotated[
    str | None, typer.Option("--head", metavar="N", help="Only this head, from 1, or their mean.", show_default=False)
]
Words = Annotated[bool, typer.Option("--words", help="Join the pieces of words.", show_default=False)]
Target = Annotated[
    str | None,
    typer.Option("--target", metavar="TEXT", help="Inspect this output, not the model's own.", show_default=False),
]
Tree = Annotated[
    bool, typer.Option("--tree", help="Show the search tree: candidates kept and pruned.", show_default=False)
]
Live = Annotated[
    bool, typer.Option("--live", help="Write a page that runs the model in a browser, offline. Texts are its examples.")
]
Word = Annotated[
    str | None,
    typer.Option(
        "--word", metavar="WORD", show_default=False,
        help="Classifiers: the attention to this word, or to 좋* and the like, by label over a split.",
    ),
]  # fmt: skip
Attribution = Annotated[
    str | None,
    typer.Option(
        "--attribution", metavar="METHOD", show_default=False,
        help="Classifiers and taggers: what each token adds to the score; integrated gradients, or gradient × input.",
    ),
]  # fmt: skip
Label = Annotated[
    str | None,
    typer.Option("--label", metavar="LABEL", help="With --attribution: not the predicted label.", show_default=False),
]
Predicted = Annotated[
    bool, typer.Option("--predicted", help="With --word: by predicted labels, not those given.", show_default=False)
]


def command(
    run: RunFolder,
    texts: Texts = None,
    file: File = None,
    out: Out = None,
    layer: Layer = None,
    head: Head = None,
    words: Words = False,
    target: Target = None,
    tree: Tree = False,
    live: Live = False,
    word: Word = None,
    split: Split = None,
    data: Data = None,
    predicted: Predicted = False,
    attribution: Attribution = None,
    label: Label = None,
    search: Search = None,
    domain: Domain = None,
    json: Json = False,
    plugin: Plugin = None,
    device: Device = "auto",
    quiet: Quiet = False,
) -> None:
    """Show the attention of a model: a heat map of source and output for every layer and head.

    For a captioner each TEXT is the path of an image, which is shown once for every word of its caption, bright where
    the word attended to it.

    For a language model each text is a prompt, and the map covers prompt and output. The output is the one that the
    search finds. A page holds all texts, layers and heads; a .png or .svg shows one text and one layer. --json prints
    the numbers and writes no file unless --out names one. --tree shows the search tree. --live writes one file that
    runs a Transformer or GPT in any browser, offline: edit the text, and output and attention change. A classifier that
    pools by attention (han, self_attentive) has one weight per word: its texts are printed in colors, or drawn with
    --out. --word shows how its attention to one word is distributed over the texts of each label. --attribution shows
    what every token adds to the score of the predicted label, or of --label, in two colors.
    """
    add_plugins(plugin)
    others = {"--layer": layer, "--target": target, "--tree": tree, "--search": search, "--domain": domain}
    if live:
        attributed = {"--word": word, "--attribution": attribution, "--label": label}
        refuse({"--head": head, "--words": words, "--json": json, **attributed, **others}, "with --live")
    if word is not None:
        refuse({"TEXT": texts, "--file": file, "--words": words, **others}, "with --word")
        show_word(run, word, out, head, split, data, predicted, json, device)
        return
    refuse({"--split": split, "--data": data, "--predicted": predicted}, "without --word")
    if live:
        write_live(run, device, read_plain(texts, file) if texts or file else [], out, quiet)
        return
    given = read_plain(texts, file)
    if attribution is not None:
        refuse({"--head": head, **others}, "with --attribution")
        show_attribution(run, device, given, out, attribution, label, words, json, quiet)
        return
    refuse({"--label": label}, "without --attribution")
    options = {**read_search(search), "domain": domain}
    if tree:
        refuse({"--layer": layer, "--head": head, "--words": words, "--target": target}, "on a search tree")
        show_trees(run, device, given, out, json, quiet, options)
        return
    options["target"] = target
    show_attention(run, device, given, out, layer, head, words, json, quiet, others, options)
