"""Wasm modules: fetched from registries of images and servers of HTTP for Envoy, which is given files."""
