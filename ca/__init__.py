"""The certificate authority of the mesh: CSRs, signers, roots and their rotation, and the gRPC service."""
