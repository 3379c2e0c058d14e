"""Validation of decoded objects beyond their types, equivalent to Istio's webhook.

Each `validate_<kind>` yields problems with paths relative to the object. Problems that the webhook denies are errors.
Problems that it only warns of, and values that a stock Envoy would reject, are warnings.
"""
