"""Controllers: they write the control plane's objects and statuses into clusters.

Examples are root certificates, allocated addresses, registered workloads, Gateway deployments and statuses.
"""
