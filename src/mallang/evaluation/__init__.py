"""Outputs to numbers."""
