"""The agent: runs next to one Envoy and provides its bootstrap, certificates, configuration, probes and metrics."""
