"""Real processes: the control plane, Envoy, agents, and the network namespaces they run in."""
