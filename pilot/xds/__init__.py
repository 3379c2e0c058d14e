"""The ADS server. Streams are state machines without I/O, and the gRPC edge carries their bytes."""
