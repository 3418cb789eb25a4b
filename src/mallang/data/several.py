"""Several corpora together: which options of [data] go with them, and which names a domain may have."""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING

from mallang.errors import nearest

if TYPE_CHECKING:
    from mallang.data.corpus import Config

DOMAIN = re.compile(r"[^\W_][\w-]*")
RESERVED = ("none", "pad", "unk", "s")
"""Names that no domain may have: `none`, which means no tag, and the names of other special tokens."""


def check_corpora(config: Config) -> None:
    """Refuse contradictory options of several corpora."""
    weights, domains = config.corpora, config.domains or {}
    if weights is None:
        if domains or config.untagged:
            raise ValueError("domains and untagged are of use with corpora only: name the corpus there")
        return
    if config.corpus not in (None, "miniworld") or config.train is not None:
        rival = "train" if config.train is not None else "corpus"
        raise ValueError(f"corpora and {rival} cannot both say what to train on: put it among the corpora")
    for name, weight in weights.items():
        if not math.isfinite(weight) or weight < 0:
            raise ValueError(f"the weight of {name} must be 0 or more, but is {weight}")
    if not any(weights.values()):
        raise ValueError("corpora needs at least one weight above 0")
    for name, domain in domains.items():
        if name not in weights:
            raise ValueError(f"domains names {name}, which is not among the corpora; {nearest(name, weights)}")
        if not DOMAIN.fullmatch(domain) or domain in RESERVED:
            raise ValueError(f"{domain!r} cannot be a domain: give letters and digits, such as bible")
    if not 0.0 <= config.untagged <= 1.0 or (config.untagged and not domains):
        raise ValueError(f"untagged = {config.untagged} must be a share between 0 and 1 of rows that have domains")
