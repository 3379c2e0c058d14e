"""Renders the objects deployed for a Gateway from an injection template and overlays."""
