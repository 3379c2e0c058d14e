"""Addresses, HTTP ports, and the TCP connections beneath gRPC."""
