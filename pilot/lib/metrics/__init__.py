"""Metrics of the process, and their text format."""
