"""AuthorizationPolicies as rules of Envoy's RBAC filters, for HTTP and TCP.

A condition that Envoy cannot express never widens access. It removes the rule from an ALLOW policy, and only the
condition from any other policy.
https://www.envoyproxy.io/docs/envoy/latest/api-v3/config/rbac/v3/rbac.proto
"""
