"""The API server of Kubernetes, which only this package talks to: requests, collections that are followed, leases, reviews."""
