"""A Kubernetes API server for tests: real HTTP, everything in memory, and faults on demand."""
