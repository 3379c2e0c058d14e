"""Builders of Envoy's messages, with a folder or file for each Envoy concept."""
