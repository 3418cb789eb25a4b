"""A task to a run folder."""
