"""Evaluation: metrics of outputs, with signatures and confidence intervals."""
