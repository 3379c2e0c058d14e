"""Network filters."""
