"""Transport sockets of listeners and clusters: TLS, QUIC, HBONE tunnels and plaintext.

Certificates always come by SDS, never inline.
"""
