"""Configuration files: reading, decoding and watching."""
