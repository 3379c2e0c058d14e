"""Kinds of the Gateway API (gateway.networking.k8s.io): https://gateway-api.sigs.k8s.io/reference/spec/

Unset fields have the defaults that an API server would set, so that objects in files have the same meaning.
"""
