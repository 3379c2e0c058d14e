"""Injection of the proxy into Pods."""
