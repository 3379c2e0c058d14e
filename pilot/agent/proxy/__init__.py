"""The proxy's context at startup: its pod, environment and ProxyConfig."""
