"""Decoding: from a model to output sequences."""
