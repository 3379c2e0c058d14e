"""Declarations of the configuration kinds."""
