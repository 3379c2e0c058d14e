"""TLS termination in front of gRPC, with optional client certificates. See docs/adr/014-tls-front.md."""
