"""Mallang: every sequence model from n-grams to GPT and BERT."""

__version__ = "0.1.0"
