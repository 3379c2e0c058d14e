"""Wasm modules: fetched from image registries and HTTP servers, and handed to Envoy as files."""
