"""Translate from Python: one text, many texts, another search, the score of a given translation.

Needs the run that `mallang demo` leaves behind.
"""

import mallang

model = mallang.load("runs/transformer-miniworld")

result = model.translate("유나는 지난주에 배를 탔다.")
print(result, result.score, result.tokens)

texts = ["민수는 사과를 먹었다.", "그 농부는 배가 아프다."]
for result in model.translate(texts, beam=8, nbest=3):
    print(result.input)
    for output, score, normalized in result.nbest:  # best first: by the score divided by the length
        print(f"  {score:.3f}  {normalized:.3f}  {output}")

for given in model.score([(texts[0], "Minsu ate an apple."), (texts[0], "Minsu drank tea.")]):
    print(f"{given.score:.3f}  {given.target}")
