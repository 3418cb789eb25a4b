"""One color per model family, the same in every figure."""

from __future__ import annotations

COLORS = {
    "counting": "#7d8590",
    "feed-forward and convolution": "#1a9f6b",
    "recurrent": "#2f7de1",
    "recurrent with attention": "#a259d9",
    "Transformer": "#e8590c",
    "other": "#b08900",
}
"""Mid-tones that can be read on white and on black."""
MEMBERS = {
    "lexicon": "counting",
    "bag_of_words": "counting",
    "ngram": "counting",
    "katz": "counting",
    "kneser_ney": "counting",
    "nplm": "feed-forward and convolution",
    "bag_of_means": "feed-forward and convolution",
    "cnn": "feed-forward and convolution",
    "char_cnn": "feed-forward and convolution",
    "word2vec": "feed-forward and convolution",
    "glove": "feed-forward and convolution",
    "fasttext": "feed-forward and convolution",
    "transe": "feed-forward and convolution",
    "paragraph_vectors": "feed-forward and convolution",
    "conv": "feed-forward and convolution",
    "autoencoder": "feed-forward and convolution",
    "rnn_lm": "recurrent",
    "elman": "recurrent",
    "gru": "recurrent",
    "lstm": "recurrent",
    "awd_lstm": "recurrent",
    "char_aware": "recurrent",
    "sutskever": "recurrent",
    "cho": "recurrent",
    "elmo": "recurrent",
    "lample": "recurrent with attention",
    "artetxe": "recurrent with attention",
    "rnn_classifier": "recurrent",
    "rnn_tagger": "recurrent",
    "grnn": "recurrent",
    "kagnet": "recurrent with attention",
    "deep_srl": "recurrent",
    "dependency_srl": "recurrent",
    "e2e_coref": "recurrent with attention",
    "self_attentive": "recurrent with attention",
    "han": "recurrent with attention",
    "bahdanau": "recurrent with attention",
    "luong": "recurrent with attention",
    "show_attend_tell": "recurrent with attention",
    "transformer": "Transformer",
    "unsupervised_transformer": "Transformer",
    "albert": "Transformer",
    "bert": "Transformer",
    "ernie": "Transformer",
    "distilbert": "Transformer",
    "electra": "Transformer",
    "gpt": "Transformer",
    "modern_gpt": "Transformer",
}
"""Model families by the first part of the name of a model, run or recipe."""


def family_of(name: str) -> str:
    """The family of a model, recipe or run, by the first part of its name: `convs2s-multi30k` is a convolution."""
    plain = name.lower().replace("-", "_")
    known = [beginning for beginning in MEMBERS if plain.startswith(beginning)]
    return MEMBERS[max(known, key=len)] if known else "other"
