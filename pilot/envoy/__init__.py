"""Translates the model to Envoy's messages, a folder or file an Envoy concept, in Envoy's words."""
