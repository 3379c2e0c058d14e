"""What objects of the Gateway API are told about themselves: the conditions of their status, as values. Who writes them is elsewhere.

Reasons are those of https://gateway-api.sigs.k8s.io/reference/spec/, and beside them the few that Istio's users know.
"""
