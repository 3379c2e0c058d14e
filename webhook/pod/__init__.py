"""Pods as plain data: what their fields are, how two are merged, and what differs between two."""
