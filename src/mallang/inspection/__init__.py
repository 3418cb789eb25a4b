"""Inspection of trained runs: attention, alignments, comparisons, health, figures."""
