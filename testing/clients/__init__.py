"""Clients: proxies, agents and workloads."""
