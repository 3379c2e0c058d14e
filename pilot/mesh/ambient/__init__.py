"""Ambient mode: the waypoints of services and workloads, and the workloads, services and policies that ztunnels
receive."""
