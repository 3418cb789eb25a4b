"""Formats of others."""
