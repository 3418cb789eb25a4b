"""A run to pictures."""
