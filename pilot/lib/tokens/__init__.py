"""Web tokens and key sets."""
