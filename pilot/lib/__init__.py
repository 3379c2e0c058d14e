"""Leaves: no knowledge of the mesh beyond its words."""
