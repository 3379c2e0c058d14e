"""Client of the Kubernetes API: requests, informers, leader election and reviews.

No other package communicates with API servers.
"""
