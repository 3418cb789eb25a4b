"""Strings to ids."""
