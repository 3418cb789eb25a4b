"""`mallang inspect`: one page that shows how a model works, or pictures and numbers of parts of it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from mallang.commands.inspected import (
    Asked,
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
    'mallang inspect runs/transformer-miniworld "유나는 배를 탔다." --numbers --layer encoder.0.self --head 1',
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
Numbers = Annotated[
    bool, typer.Option("--numbers", help="Attention step by step with its numbers: X, Q, K, V, softmax, output.")
]
Start = Annotated[
    int | None,
    typer.Option(
        "--start", metavar="N", min=1, help="The first token shown of a long text, from 1.", show_default=False
    ),
]
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
        help="What each token adds to the score of a label, answer, choice or pair: integrated, or gradient × input.",
    ),
]  # fmt: skip
Label = Annotated[
    str | None,
    typer.Option("--label", metavar="LABEL", help="With --attribution: not the predicted one.", show_default=False),
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
    numbers: Numbers = False,
    start: Start = None,
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
    text is a prompt, for a captioner the path of an image; a run that reads several texts at once (pairs, questions,
    choices, triples) takes them as arguments, or with tabs between. A .png or .svg shows the attention of one text and
    layer. --json prints the numbers and writes no file unless --out names one, --numbers prints one head step by step.
    --live writes a file that runs a model in a browser. Texts of han and self_attentive are printed in colors.
    """
    add_plugins(plugin)
    given = read_plain(texts, file) if word is None and not (live and not texts and not file) else []
    pages = {"--layer": layer, "--with": with_run, "--numbers": numbers, "--start": start}
    searched = {"--target": target, "--tree": tree, "--search": search, "--domain": domain}
    refuse({"--split": split, "--data": data, "--predicted": predicted} if word is None else {}, "without --word")
    refuse({"--label": label} if attribution is None else {}, "without --attribution")
    if live:
        own = {"--head": head, "--words": words, "--json": json, "--word": word, "--attribution": attribution}
        refuse(own | pages | searched, "with --live")
        write_live(run, device, given, out, quiet)
    elif word is not None:
        refuse({"TEXT": texts, "--file": file, "--words": words} | pages | searched, "with --word")
        show_word(run, word, out, head, split, data, predicted, json, device)
    elif attribution is not None:
        refuse({"--head": head} | pages | searched, "with --attribution")
        show_attribution(run, device, given, out, attribution, label, words, json, quiet)
    elif tree:
        refuse({"--head": head, "--words": words, "--target": target} | pages, "on a search tree")
        show_trees(run, device, given, out, json, quiet, {**read_search(search), "domain": domain})
    else:
        asked = Asked(
            layers=tuple(layer or ()), head=head, words=words, numbers=numbers, start=start, json=json, quiet=quiet,
            target=target, domain=domain, search=read_search(search), searched=searched,
        )  # fmt: skip
        show_attention(run, with_run or [], device, given, out, asked)
