"""Converts AuthorizationPolicies to rules for Envoy's RBAC filters, for HTTP and TCP.

A condition that Envoy cannot express never widens access. In an ALLOW policy, the entire rule is omitted. In any other
policy, only the condition is omitted.
https://www.envoyproxy.io/docs/envoy/latest/api-v3/config/rbac/v3/rbac.proto
"""
