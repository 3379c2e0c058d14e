"""Ambient mode: waypoints and their users, and the workloads, services and policies for ztunnels."""
