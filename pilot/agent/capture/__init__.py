"""What has a pod's traffic go through its Envoy: the rules of its network namespace, and how they get there and away."""
