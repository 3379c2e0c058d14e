"""TLS in front of gRPC, with client certificates that are optional (docs/adr/014-tls-front.md)."""
