"""The xDS proxy between Envoy and the control plane."""
