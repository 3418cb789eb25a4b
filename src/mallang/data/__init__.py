"""Data: corpora, filters, samplers and batches."""
