"""Reads objects from the API servers of clusters."""
