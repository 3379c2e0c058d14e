"""Keys, certificates, tokens, and input of peers that have none."""
