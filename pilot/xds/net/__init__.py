"""Addresses, HTTP ports, and the TCP connections below them."""
