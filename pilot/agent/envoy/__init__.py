"""The Envoy process: its bootstrap, command line, admin API and draining."""
