"""AuthorizationPolicies as the rules of Envoy's RBAC filters, of HTTP and of TCP.

https://www.envoyproxy.io/docs/envoy/latest/api-v3/config/rbac/v3/rbac.proto

What cannot be said to Envoy must never let anything through: in a rule that allows it drops the rule, in any other the condition.
"""
