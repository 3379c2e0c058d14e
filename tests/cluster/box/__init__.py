"""A Kubernetes cluster without container runtime: pods are network namespaces, and containers are processes.

Linux only, as root. Everything runs in its own PID, mount and network namespaces and ends with the first process.

The API server, the controllers and the scheduler are the real ones. The node, its proxy, DNS and load balancers stand
in. They have no NetworkPolicies, seccomp profiles, CPU limits, IPv6, session affinity, metrics API or `kubectl exec`; the
commands of `box.run_in` take its place. A pod with a field that the box does not implement fails and says so.
"""
