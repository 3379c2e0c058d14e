"""The kinds of the Gateway API, gateway.networking.k8s.io: https://gateway-api.sigs.k8s.io/reference/spec/

Fields have the defaults that the API server fills in, so that objects of files mean the same.
"""
