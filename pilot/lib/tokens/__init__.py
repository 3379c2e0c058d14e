"""JSON Web Tokens and key sets."""
