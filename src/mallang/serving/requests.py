"""The requests of every verb: what a client may send, checked before a worker sees it.

A request holds items, which are texts, pairs, or questions with their context, and options, which hold for all its
items. Requests with equal options may share a batch.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field

MOST_ITEMS = 32
"""Texts per request."""
LONGEST = 20_000
"""Characters per text."""
MOST_TOKENS = 4096
"""Tokens that may be asked for."""

Text = Annotated[str, Field(max_length=LONGEST, pattern=r"^[^\x00]*$")]
Name = Annotated[str, Field(min_length=1, max_length=200)]
Phrase = Annotated[str, Field(min_length=1, max_length=200, pattern=r"^[^\x00]*$")]
"""Words that an output must have, or must not have: a search follows them token by token, at every step."""
Several = Annotated[list[Text], Field(min_length=1, max_length=MOST_ITEMS)]
Texts = Annotated[Text | Several, Field(description="A text, or several.")]
Pair = Annotated[list[Text], Field(min_length=2, max_length=2)]
Pairs = Annotated[list[Pair], Field(min_length=1, max_length=MOST_ITEMS)]
Seed = Annotated[int, Field(ge=0, lt=2**63)]
Stops = Text | Annotated[list[Text], Field(max_length=4)]

DATA_URI = r"^data:image/[a-z+.-]+;base64,[A-Za-z0-9+/=]+$"
"""An image in a request; anything else that stands for an image is the path of a file of the server."""


class Strict(BaseModel):
    """A request: unknown fields are refused, and no type is taken for another."""

    model_config = ConfigDict(extra="forbid", strict=True)


class VerbRequest(Strict):
    """A request to a run; `run` may be left out where one run alone has the verb."""

    reads: ClassVar[tuple[str, ...]] = ("texts",)
    """The fields that hold the items."""
    seeded: ClassVar[bool] = False
    """Whether its outputs may be sampled, by random numbers that depend on the place in the request."""

    run: Name | None = Field(None, description="The name of the run, as /api/runs lists it.")

    def items(self) -> list[Any]:
        """The items."""
        given = getattr(self, self.reads[0])
        return list(given) if isinstance(given, list) else [given]

    def options(self) -> dict[str, Any]:
        """The options that were given; null is as good as left out."""
        given = self.model_dump(exclude_unset=True, exclude={"run", *self.reads})
        return {name: value for name, value in given.items() if value is not None}


class SearchRequest(VerbRequest):
    """Options of a search; those left out are the recipe's."""

    seeded = True
    method: Literal["greedy", "beam", "sampling"] | None = None
    beam: int | None = Field(None, ge=1, le=32)
    nbest: int | None = Field(None, ge=1, le=16)
    length_penalty: Literal["average", "gnmt", "none"] | None = None
    alpha: float | None = Field(None, ge=0, le=10)
    max_length: int | None = Field(None, ge=1, le=MOST_TOKENS)
    min_length: int | None = Field(None, ge=1, le=MOST_TOKENS)
    temperature: float | None = Field(None, gt=0, le=100)
    top_k: int | None = Field(None, ge=0, le=1_000_000)
    top_p: float | None = Field(None, gt=0, le=1)
    seed: Seed | None = None


class Translate(SearchRequest):
    """Texts to translate, to reply to, or to reconstruct."""

    texts: Texts
    domain: Name | None = Field(None, description="The domain of the texts: one that the run knows.")
    prefix: Text = Field("", description="What outputs begin with.")
    require: Annotated[list[Phrase], Field(max_length=8)] = Field([], description="What outputs contain.")
    forbid: Annotated[list[Phrase], Field(max_length=8)] = Field([], description="What outputs do not contain.")


class Reconstruct(SearchRequest):
    """Texts that an autoencoder reads and writes again."""

    texts: Texts


class Generate(SearchRequest):
    """Prompts to continue; with `stream` the outputs come as server-sent events while they are generated."""

    reads = ("prompts",)
    prompts: Texts = ""
    lines: int = Field(1, ge=1, le=64, description="Lines to generate, by a model of streams.")
    stop: Stops = Field([], description="Texts that end an output.")
    stream: bool = False

    def options(self) -> dict[str, Any]:
        """The options that were given; how they are sent is none of them."""
        return {name: value for name, value in super().options().items() if name != "stream"}


class Score(VerbRequest):
    """Texts to score, or sources with their outputs where the run has a source."""

    reads = ("texts", "pairs")
    texts: Texts | None = None
    pairs: Pairs | None = Field(None, description="Each a source and its output.")
    domain: Name | None = None

    def items(self) -> list[Any]:
        """The texts, or the pairs."""
        if self.texts is not None and self.pairs is not None:
            raise ValueError("texts and pairs are given, and only one of them is read: leave one out")
        given = self.pairs if self.texts is None else self.texts
        return (
            [given]
            if isinstance(given, str)
            else [tuple(each) if isinstance(each, list) else each for each in given or []]
        )


class Classify(VerbRequest):
    """Texts to classify; a run that reads pairs takes pairs."""

    reads = ("texts", "pairs")
    texts: Texts | None = None
    pairs: Pairs | None = None
    calibrated: bool = True
    items = Score.items


class Tag(VerbRequest):
    """Texts to tag word by word."""

    texts: Texts
    nbest: int = Field(1, ge=1, le=16)
    pretokenized: bool = Field(False, description="Split the text at white space alone.")


class Coref(VerbRequest):
    """Texts in which names, pronouns and nouns that mean the same are asked for."""

    texts: Texts


class Roles(VerbRequest):
    """Texts in which to find who does what to whom."""

    texts: Texts
    predicates: Annotated[list[Name | Annotated[int, Field(ge=1, le=10_000)]], Field(max_length=64)] | None = Field(
        None, description="Words of the text, or their numbers from 1; left out: the model finds them."
    )
    pretokenized: bool = Field(False, description="Split the text at white space alone.")


class Embed(VerbRequest):
    """Texts, or words, whose vectors are asked for."""

    texts: Texts
    words: bool = Field(False, description="The embeddings of words, not of texts.")


class Answer(VerbRequest):
    """Questions, each with the context that may hold its answer."""

    reads = ("questions", "contexts")
    questions: Texts
    contexts: Texts
    nbest: int = Field(1, ge=1, le=16)

    def items(self) -> list[Any]:
        """Each question with its context; one context may serve for all."""
        questions = [self.questions] if isinstance(self.questions, str) else self.questions
        contexts = [self.contexts] * len(questions) if isinstance(self.contexts, str) else self.contexts
        if len(contexts) != len(questions):
            raise ValueError(f"there are {len(questions)} questions, but {len(contexts)} contexts")
        return list(zip(questions, contexts, strict=True))


class Choose(VerbRequest):
    """A question and its choices."""

    reads = ("question", "choices")
    question: Text
    choices: Annotated[list[Text], Field(min_length=2, max_length=16)]

    def items(self) -> list[Any]:
        """The question with its choices."""
        return [(self.question, tuple(self.choices))]


class Fill(VerbRequest):
    """Texts with gaps, written [MASK] or <mask>."""

    texts: Texts
    count: int = Field(5, ge=1, le=100)


Image = Annotated[str, Field(max_length=1_000_000, pattern=DATA_URI)]


class Caption(SearchRequest):
    """Images to write captions for, as data URIs: a path would be a file of the server."""

    reads = ("images",)
    images: Annotated[
        Image | Annotated[list[Image], Field(min_length=1, max_length=MOST_ITEMS)],
        Field(description="An image, or several: data:image/png;base64,…"),
    ]


class Complete(VerbRequest):
    """A triple of a knowledge graph without its tail, or with `heads` without its head."""

    reads = ("entity", "relation")
    entity: Annotated[str, Field(min_length=1, max_length=1000)]
    relation: Annotated[str, Field(min_length=1, max_length=1000)]
    heads: bool = False
    count: int = Field(10, ge=1, le=1000)

    def items(self) -> list[Any]:
        """The entity and the relation."""
        return [(self.entity, self.relation)]


class Neighbors(VerbRequest):
    """Words whose nearest words are asked for."""

    reads = ("words",)
    words: Texts
    count: int = Field(10, ge=1, le=1000)


class Similarity(VerbRequest):
    """Pairs of texts."""

    reads = ("pairs",)
    pairs: Pairs

    def items(self) -> list[Any]:
        """The pairs."""
        return [tuple(pair) for pair in self.pairs]


class Prefer(Similarity):
    """Pairs of texts, of which the more probable one is asked for."""

    by: Literal["total", "token"] = "total"


REQUESTS: Mapping[str, type[VerbRequest]] = {
    "translate": Translate,
    "reply": Translate,
    "reconstruct": Reconstruct,
    "generate": Generate,
    "score": Score,
    "classify": Classify,
    "tag": Tag,
    "coref": Coref,
    "roles": Roles,
    "embed": Embed,
    "answer": Answer,
    "choose": Choose,
    "fill": Fill,
    "neighbors": Neighbors,
    "similarity": Similarity,
    "prefer": Prefer,
    "caption": Caption,
    "complete": Complete,
}
"""The request of every verb that is served."""


Shown = Annotated[str, Field(min_length=1, max_length=2000, pattern=r"^[^\x00]*$")]


class Inspect(SearchRequest):
    """A text to look at inside a model: attention, alignment, next tokens, search tree; the page draws it."""

    reads = ("text",)
    text: Shown | Annotated[list[Shown], Field(min_length=1, max_length=8)] | Image | None = Field(
        None,
        description="Or several. For a captioner an image, as a data URI. Left out: the run and its curves.",
    )
    layers: Annotated[list[Name], Field(max_length=64)] | None = None
    head: Annotated[str, Field(max_length=4, pattern=r"^(mean|[1-9][0-9]*)$")] | None = None
    words: bool = Field(False, description="Join the pieces of words.")
    numbers: bool = Field(False, description="Attention step by step with its numbers, also where they are many.")
    start: int = Field(0, ge=0, le=1_000_000, description="The first token of a long text that is shown.")
    target: Text | None = Field(None, description="Inspect this output, not the model's own.")
    domain: Name | None = None

    def items(self) -> list[Any]:
        """All texts as one item: they are shown on one page."""
        return [[] if self.text is None else [self.text] if isinstance(self.text, str) else self.text]


class Live(VerbRequest):
    """A model that a browser runs itself: its header in JSON, and its weights as int8, gzipped, in base64."""

    reads = ()

    def items(self) -> list[Any]:
        """The run itself."""
        return [None]


VIEWS: Mapping[str, type[VerbRequest]] = {"inspect": Inspect, "live": Live}
"""The requests of the page that are no verbs of a run."""
ALL: Mapping[str, type[VerbRequest]] = {**REQUESTS, **VIEWS}
