"""The sizes of models by their bare name, for small, medium and large training texts (defaults.py chooses the row)."""

from __future__ import annotations

from collections.abc import Mapping

from mallang.recipe_layers import Values

SHAPES: Mapping[str, tuple[Values, ...]] = {
    "transformer": (
        {"layers": 2, "dim": 128, "heads": 4, "hidden_dim": 512, "norm": "pre"},
        {"layers": 4, "dim": 256, "heads": 4, "hidden_dim": 1024, "norm": "pre"},
        {"layers": 6, "dim": 512, "heads": 8, "hidden_dim": 2048, "norm": "pre"},
    ),
    "bahdanau": (
        {"embedding_dim": 256, "dim": 256, "score_dim": 256, "readout_dim": 256, "tie_weights": "all"},
        {"embedding_dim": 256, "dim": 512, "score_dim": 512, "readout_dim": 256, "tie_weights": "all"},
        {"embedding_dim": 620, "dim": 1000, "score_dim": 1000, "readout_dim": 500},
    ),
    "luong": (
        {"layers": 2, "embedding_dim": 256, "dim": 256, "tie_weights": "all"},
        {"layers": 2, "embedding_dim": 512, "dim": 512, "tie_weights": "all"},
        {"layers": 4, "embedding_dim": 1000, "dim": 1000},
    ),
    "sutskever": (
        {"layers": 2, "embedding_dim": 256, "dim": 256, "tie_weights": "all"},
        {"layers": 2, "embedding_dim": 512, "dim": 512, "tie_weights": "all"},
        {"layers": 4, "embedding_dim": 1000, "dim": 1000},
    ),
    "cho": (
        {"embedding_dim": 256, "dim": 256, "readout_dim": 256, "tie_weights": "all"},
        {"embedding_dim": 256, "dim": 768, "readout_dim": 256, "tie_weights": "all"},
        {"embedding_dim": 256, "dim": 1000, "readout_dim": 500},
    ),
    "convs2s": (
        {"layers": 3, "decoder_layers": 3, "dim": 256, "tie_weights": "all"},
        {"layers": 4, "decoder_layers": 3, "dim": 256, "tie_weights": "all"},
        {"layers": 10, "decoder_layers": 10, "dim": 512},
    ),
    "gpt": (
        {"layers": 4, "dim": 128, "heads": 4, "max_length": 512},
        {"layers": 6, "dim": 384, "heads": 6, "max_length": 512},
        {"layers": 12, "dim": 768, "heads": 12, "max_length": 512},
    ),
    "modern_gpt": (
        {"layers": 4, "dim": 128, "heads": 4, "max_length": 512, "tie_weights": True},
        {"layers": 6, "dim": 384, "heads": 6, "max_length": 512, "tie_weights": True},
        {"layers": 12, "dim": 768, "heads": 6, "max_length": 512},
    ),
    "rnn_lm": (
        {"layers": 1, "embedding_dim": 256, "dim": 256, "tie_weights": True},
        {"layers": 2, "embedding_dim": 512, "dim": 512, "tie_weights": True},
        {"layers": 2, "embedding_dim": 1024, "dim": 1024, "tie_weights": True},
    ),
    "char_aware": ({"layers": 1, "dim": 256}, {"layers": 2, "dim": 304}, {"layers": 2, "dim": 656}),
    "conv_lm": (
        {"blocks": 2, "block_layers": 2, "dim": 256, "embedding_dim": 256, "tie_weights": True},
        {"blocks": 4, "block_layers": 2, "dim": 512, "embedding_dim": 512, "tie_weights": True},
        {"blocks": 4, "block_layers": 2, "dim": 800, "embedding_dim": 280},
    ),
    "nplm": (
        {"embedding_dim": 128, "dim": 128, "tie_weights": True},
        {"embedding_dim": 256, "dim": 256, "tie_weights": True},
        {"embedding_dim": 400, "dim": 400, "tie_weights": True},
    ),
    "unsupervised_transformer": (
        {"layers": 2, "dim": 128, "heads": 4, "hidden_dim": 512},
        {"layers": 3, "dim": 256, "heads": 4, "hidden_dim": 1024},
        {"layers": 4, "dim": 512, "heads": 8, "hidden_dim": 2048},
    ),
    "lample": ({"layers": 1, "dim": 128, "discriminator_dim": 256}, {"layers": 2, "dim": 256}, {}),
    "artetxe": ({"layers": 1, "embedding_dim": 128, "dim": 128}, {"layers": 2, "embedding_dim": 256, "dim": 256}, {}),
    "autoencoder": ({"hidden_dims": [256], "dim": 32}, {"hidden_dims": [500, 250], "dim": 32}, {}),
}
"""The model sizes of the tiers, without their dropout; a plugin's model keeps its own defaults."""
