"""Servers that a mesh calls: backends, registries, collectors, key servers."""
