"""Builds what ztunnels are sent: workloads, services, and the policies that they enforce."""
