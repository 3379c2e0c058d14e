"""Controllers: the objects and statuses that a control plane writes into clusters.

Examples are root certificates, allocated addresses, registered workloads, Gateway deployments and statuses.
"""
