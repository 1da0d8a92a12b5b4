"""Verify, before a job's data is loaded, that a GPU environment works on a GPU generation."""

__version__ = "0.1.0"
