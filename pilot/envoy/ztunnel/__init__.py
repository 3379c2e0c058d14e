"""Resources for ztunnels: workloads, services, and the policies that they enforce."""
