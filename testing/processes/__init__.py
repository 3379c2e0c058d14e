"""Real processes: control planes, Envoys, agents, and the network namespaces they run in."""
