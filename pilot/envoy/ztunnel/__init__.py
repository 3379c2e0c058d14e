"""Resources for ztunnels: workloads, services, and the policies that ztunnels enforce."""
