"""What cannot be exported is refused in words."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from mallang.decoding.contract import Config as Search
from mallang.errors import UserError
from mallang.find import find
from mallang.interop import ctranslate2, onnx
from mallang.tasks.translation import Config, Task, Verbs
from mallang.text.tokenizer import Config as TextConfig
from mallang.text.tokenizer import Tokenizer


@pytest.mark.parametrize("name", ["sutskever", "cho"])
@pytest.mark.parametrize("form", [ctranslate2, onnx], ids=["ctranslate2", "onnx"])
def test_a_recurrent_model_is_not_exported(name: str, form: Any, tmp_path: Path) -> None:
    for package in ("onnx", "onnxscript", "onnxruntime") if form is onnx else ():
        pytest.importorskip(package)
    tokenizer = Tokenizer.train(["a b"], TextConfig(unit="char"))
    module = find("models", name)
    model = module.Model(module.Config(**module.SIZES["tiny"]), tokenizer.vocabulary, tokenizer.vocabulary)
    task = Task(Config(), {"source": tokenizer, "target": tokenizer})
    with pytest.raises(UserError, match=f"only the Transformer can be exported, not {type(model).__name__}"):
        form.write(Verbs(task, model, Search(), 0), tmp_path / "export")
    assert not (tmp_path / "export").exists()
