"""Injects the proxy into Pods."""
