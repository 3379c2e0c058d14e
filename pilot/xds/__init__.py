"""The ADS server. Sessions are state machines without I/O, and `ads` connects them to gRPC."""
