"""Look inside a translation: which source tokens did each output token attend to?

Needs the run that `mallang demo` leaves behind.
"""

import numpy as np
import torch

import mallang

model = mallang.load("runs/transformer-miniworld")
text = "유나는 지난주에 배를 탔다."
(hypotheses,) = model.search([text], model.config)  # the output as ids
source = model.task.source.encode_batch([text])[0]
batch = model.task.prepare([((source, list(hypotheses[0].tokens)),)], np.random.default_rng(0))

# Inside the block every attention layer keeps its weights: [batch, heads, query, key].
with mallang.record_attention(model.model) as maps, torch.inference_mode():
    model.model(batch.to(model.device))
for name, weights in maps.items():
    print(name, tuple(weights.shape))

words = model.task.target.vocabulary.tokens
weights = maps["decoder.1.cross"][0].mean(dim=0)  # the mean over the heads: [target, source]
for said, row in zip(batch.labels[0].tolist(), weights, strict=True):
    place = int(row.argmax())
    print(f"{words[said]:12} looked most at {words[int(batch.source[0, place])]}")
