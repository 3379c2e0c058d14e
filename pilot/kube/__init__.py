"""A client for the Kubernetes API: requests, informers, leader election, token reviews and access reviews.

No other package communicates with API servers.
"""
