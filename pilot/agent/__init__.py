"""The proxy's side: what an Envoy needs to find the control plane."""
