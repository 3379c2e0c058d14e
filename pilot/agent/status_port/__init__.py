"""The agent's status port: readiness, application probes and merged metrics."""
