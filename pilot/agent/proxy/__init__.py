"""The properties of the proxy at startup, from its pod, its environment and its ProxyConfig."""
