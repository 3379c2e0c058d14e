"""Clients of control planes and sidecars: proxies, agents and workloads."""
