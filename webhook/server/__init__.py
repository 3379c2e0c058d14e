"""The admission webhooks: /inject for Pods, and /validate for Istio configuration."""
