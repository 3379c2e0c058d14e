"""Resolves the hostnames of network gateways in the background, and writes their addresses to a table."""
