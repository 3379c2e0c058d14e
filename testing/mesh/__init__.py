"""Meshes in memory, and the objects and pages of them."""
