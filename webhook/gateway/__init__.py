"""Renders the objects that deploy a Gateway from an injection template and overlays."""
