"""Wasm modules: fetched from image registries and HTTP servers, and passed to Envoy as files."""
