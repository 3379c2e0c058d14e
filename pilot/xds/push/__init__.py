"""Pushes responses to connected proxies. This package tracks which proxies a change affects, and controls the order and
rate of writes."""
