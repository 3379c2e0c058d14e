"""Pushes: the connected proxies, the changes that affect them, and the order and rate of writes."""
