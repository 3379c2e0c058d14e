"""The certificate authority of the mesh; nothing is here yet."""
