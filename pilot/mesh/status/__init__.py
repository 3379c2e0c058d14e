"""Status of objects of the Gateway API, Ingresses and ambient mesh, as values; controllers write them.

Reasons are those of https://gateway-api.sigs.k8s.io/reference/spec/ and Istio's additional ones.
"""
