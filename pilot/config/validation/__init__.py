"""Validates decoded objects beyond their types, in the same way as Istio's webhook.

Each `validate_<kind>` yields problems with paths relative to the object. Errors are problems for which the webhook
denies the object. Warnings are problems that the webhook only warns about, and values that a stock Envoy would reject.
"""
