"""Consul's catalogue as a source of configuration: an example of an adapter that foreign registries come in by."""
