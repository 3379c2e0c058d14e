"""The conformance suite of the Gateway API, on any cluster or on one without container runtime."""
