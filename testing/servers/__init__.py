"""Servers that a mesh connects to: backends, registries, trace collectors, key servers."""
