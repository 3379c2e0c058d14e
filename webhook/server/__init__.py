"""The admission webhooks: /inject for Pods, /validate for Istio configuration."""
