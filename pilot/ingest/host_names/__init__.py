"""Resolves the host names of network gateways in the background, and writes their addresses to a table."""
