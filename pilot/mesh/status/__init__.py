"""The status of Gateway API objects, Ingresses and objects in an ambient mesh. Controllers write it to the API server.

Reasons are those of https://gateway-api.sigs.k8s.io/reference/spec/, and others that Istio defines.
"""
