"""Keys, certificates, tokens, and input of unauthenticated peers."""
