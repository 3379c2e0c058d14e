"""Client of the Kubernetes API: requests, informers, leader election, reviews.

No other package talks to an API server.
"""
