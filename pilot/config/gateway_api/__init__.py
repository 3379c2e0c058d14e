"""Kinds of the Gateway API (gateway.networking.k8s.io): https://gateway-api.sigs.k8s.io/reference/spec/

The defaults of fields are those that the API server sets, so that objects in files have the same meaning.
"""
