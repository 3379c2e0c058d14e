"""Protobuf reflection: lookup of types by name, JSON decoding, merging, and validation of field rules."""
