"""A Kubernetes cluster without container runtime: pods are network namespaces, and containers are processes.

Linux only, as root. Everything runs in its own PID, mount and network namespaces and ends with the first process.
"""
