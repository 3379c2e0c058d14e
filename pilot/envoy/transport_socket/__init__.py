"""Transport sockets of listeners and clusters: TLS, QUIC, HBONE tunnels and plaintext.

Certificates are always delivered over SDS, never inline.
"""
