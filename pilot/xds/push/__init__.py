"""Pushes responses to connected proxies. This package tracks which proxies a change affects, and limits the order and
rate of writes."""
