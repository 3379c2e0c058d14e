"""Istio's own wire messages that no package carries; `make protos` generates the `_pb2` modules from the .proto
files."""
