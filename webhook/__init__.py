"""The injection and validation webhooks, kube-inject, and the rendering of gateway deployments."""
