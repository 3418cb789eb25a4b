"""Export a trained model and translate with it as a machine without mallang would."""

import runpy
from pathlib import Path

import mallang
from mallang.interop import ctranslate2

model = mallang.load("runs/transformer-miniworld", device="cpu")
folder = Path("exported")
ctranslate2.write(model, folder)

text = "유나는 지난주에 배를 탔다."
translator = runpy.run_path(str(folder / "translate.py"))["Translator"](folder)
print(translator.translate([text])[0])
print(model.translate(text, method="greedy"))
