"""Images over HTTP: a data URI is looked at, and what could be the path of a file of the server is not read."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import mallang
from mallang import recipe
from mallang.data import miniworld_pictures
from mallang.data.images import data_uri
from mallang.errors import UserError
from mallang.serving import calls
from mallang.serving.requests import Inspect
from mallang.training.train import Options, train
from serving.serving import TEXTS, Client, serving

SMALL = (
    "model.size=tiny", "model.conv_dims=[12,24]", "model.embedding_dim=24", "model.dim=32", "model.score_dim=16",
    "train.epochs=none", "train.validate_every=none", "train.steps=1", "train.batch_tokens=64", "text.vocabulary=300",
)  # fmt: skip


@pytest.fixture(scope="module")
def captioner(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("captioned")
    rows = ["image\tcaption", *(f"{row[0]}\t{row[2]}" for row in miniworld_pictures.rows("train", 12))]
    (table := folder / "captions.tsv").write_text("\n".join(rows) + "\n", "utf-8")
    data = [f"data.{part}={table}" for part in ("train", "valid", "test")]
    built = recipe.read("show-attend-tell-miniworld", [*SMALL, *data]).build()
    return train(built, Options(folder=folder / "captioner", device="cpu", quiet=True)).folder


@pytest.fixture(scope="module")
def server(captioner: Path) -> Iterator[Client]:
    with serving(captioner, "--workers", "1") as (client, _):
        yield client


@pytest.fixture(scope="module")
def image() -> str:
    """Noise, which no format makes small: more characters than a text to look into may have."""
    cell = data_uri(np.random.default_rng(1).integers(0, 256, (48, 48, 3), np.uint8))
    assert len(cell) > 2000
    return cell


def test_an_image_is_captioned_and_looked_into(server: Client, captioner: Path, image: str) -> None:
    expected = mallang.load(captioner, "cpu").caption(image)
    assert server.post("/api/caption", images=image)[1]["results"][0]["output"] == expected.output
    status, found = server.post("/api/inspect", text=image)
    assert status == 200 and found["results"][0]["data"]["runs"][0]["texts"][0]["output"] == expected.output
    assert "image" in found["results"][0]["data"]["runs"][0]["texts"][0]


def test_a_file_of_the_server_is_never_read(server: Client, tmp_path: Path, image: str) -> None:
    secret = tmp_path / "secret.png"
    from PIL import Image

    Image.new("RGB", (8, 8), "red").save(secret)
    for path in (
        str(secret),
        "/etc/passwd",
        "/nowhere.png",
        f"data:image/png;base64,A\n{secret}",
        "data:image/../../etc/passwd",
    ):
        status, answer = server.post("/api/inspect", text=path)
        said: Any = answer["error"]
        assert status == 400 and "this run reads images" in said["message"], (path, answer)
        assert "No such file" not in said["message"] and "passwd" not in said["message"]
        assert server.post("/api/caption", images=path)[0] == 400


def test_several_texts_with_options_are_looked_into(translator: Path) -> None:
    verbs = mallang.load(translator, "cpu")
    options = {"numbers": True, "start": 1, "beam": 2}
    (found,) = calls.call(verbs, "inspect", [(str(translator), TEXTS[:2])], options)
    texts = found["data"]["runs"][0]["texts"]
    assert [each["input"] for each in texts] == TEXTS[:2] and texts[0]["window"]["start"] == 1
    assert texts[0]["tree"]["beam"] == 2 and "numbers" in texts[0]
    with pytest.raises(UserError, match="target is the output of one text"):
        calls.call(verbs, "inspect", [(str(translator), TEXTS[:2])], {"target": "a"})
    assert Inspect(text=TEXTS[:2], numbers=True).items() == [TEXTS[:2]] and Inspect().items() == [[]]


def test_an_image_has_a_limit_of_its_own(server: Client, image: str) -> None:
    assert server.post("/api/inspect", text="가" * 2001)[0] == 400
    assert server.post("/api/inspect", text="data:image/png;base64," + "A" * 1_000_000)[0] == 400
