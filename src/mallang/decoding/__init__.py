"""A model to sequences."""
