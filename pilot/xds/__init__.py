"""The ADS server. Sessions are state machines without I/O; `ads` connects them to gRPC."""
