"""Finished files of a job, brought to a safe place while it runs."""
