"""`mallang inspect`: one page that shows how a model works, or pictures and numbers of parts of it."""

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
    'mallang inspect runs/transformer-miniworld "유나는 지난주에 배를 탔다." --with runs/bahdanau-miniworld',
    'mallang inspect runs/transformer-miniworld "유나는 지난주에 배를 탔다." --words --out ship.png',
    "mallang inspect runs/transformer-miniworld --file in.txt --out pictures --layer decoder.1.cross --head mean",
    'mallang inspect runs/transformer-miniworld "유나는 지난주에 배를 탔다." --json',
    'mallang inspect runs/transformer-miniworld "유나는 지난주에 배를 탔다." --tree --out tree.png --search beam=3',
    'mallang inspect runs/transformer-miniworld "유나는 지난주에 배를 탔다." --live --out live.html',
    'mallang inspect runs/gpt-miniworld "유나는 지난주에" --words --search method=greedy',
    'mallang inspect runs/han-imdb "Slow at first. The end is great!" --out review.html',
    "mallang inspect runs/han-imdb --word good --split test --out good.png",
    "mallang inspect runs/show-attend-tell-miniworld picture.png --out attention.png",
    'mallang inspect runs/deep-srl-miniworld "유나는 지난주에 배를 탔다." --out roles.html',
    'mallang inspect runs/cnn-imdb "Slow at first. The end is great!" --attribution integrated --out review.html',
)
File = Annotated[Path | None, typer.Option("--file", "-f", help="Inspect each line of this file.", show_default=False)]
Out = Annotated[
    Path | None,
    typer.Option(
        "--out", "-o", metavar="PATH", show_default=False,
        help="A .html page, a .png or .svg, or a folder for a .png of each text and layer; else RUN/inspect.html.",
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
With = Annotated[
    list[Path] | None,
    typer.Option(
        "--with", metavar="RUN", show_default=False, help="Another run on the same texts, to compare. Repeatable."
    ),
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
    with_run: With = None,
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
    """Write one page that shows how a model works: attention, alignment, next tokens, search tree, training curves.

    The page is one HTML file, which needs no network; without a text it shows the run alone. For a language model each
    text is a prompt. A .png or .svg shows the attention of one text and one layer. --json prints the numbers and writes
    no file unless --out names one. --live writes one file that runs a Transformer or GPT in any browser, offline. A
    classifier that pools by attention (han, self_attentive) has one weight per word: its texts are printed in colors,
    or drawn with --out; --word shows how its attention to one word is distributed over the texts of each label.
    --attribution shows what every token adds to the score of the predicted label, or of --label, in two colors. For a
    captioner each TEXT is the path of an image, shown once for every word. A role labeler's page shows who does what.
    """
    add_plugins(plugin)
    pages = {"--layer": layer, "--with": with_run}
    searched = {"--target": target, "--tree": tree, "--search": search, "--domain": domain}
    if word is None:
        refuse({"--split": split, "--data": data, "--predicted": predicted}, "without --word")
    if attribution is None:
        refuse({"--label": label}, "without --attribution")
    if live:
        own = {"--head": head, "--words": words, "--json": json, "--word": word, "--attribution": attribution}
        refuse(own | pages | searched, "with --live")
        write_live(run, device, read_plain(texts, file) if texts or file else [], out, quiet)
    elif word is not None:
        refuse({"TEXT": texts, "--file": file, "--words": words} | pages | searched, "with --word")
        show_word(run, word, out, head, split, data, predicted, json, device)
    elif attribution is not None:
        refuse({"--head": head} | pages | searched, "with --attribution")
        show_attribution(run, device, read_plain(texts, file), out, attribution, label, words, json, quiet)
    elif tree:
        refuse({"--head": head, "--words": words, "--target": target} | pages, "on a search tree")
        options = {**read_search(search), "domain": domain}
        show_trees(run, device, read_plain(texts, file), out, json, quiet, options)
    else:
        options = {**read_search(search), "domain": domain, "target": target}
        given = read_plain(texts, file)
        show_attention(run, with_run or [], device, given, out, layer, head, words, json, quiet, searched, options)
