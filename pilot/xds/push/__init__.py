"""Pushes: connected proxies, what changed for them, and the order and speed of writes."""
