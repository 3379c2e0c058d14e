"""Kinds of the Gateway API (gateway.networking.k8s.io): https://gateway-api.sigs.k8s.io/reference/spec/

Fields have the defaults of the API server, so that objects in files mean the same.
"""
