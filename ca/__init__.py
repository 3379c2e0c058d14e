"""The certificate authority of the mesh: signing, the root and where it is kept, rotation, and its gRPC service."""
