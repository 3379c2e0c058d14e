"""The rules that a decoded object must keep beyond its types, by which Istio's webhook admits it, one module a kind.

Each `validate_<kind>` yields problems with paths from the object's root. What the webhook denies is an error, what it
only warns of a warning; so is what a stock Envoy would refuse.
"""
