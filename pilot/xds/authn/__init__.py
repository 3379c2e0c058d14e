"""Authentication of callers by certificates and tokens."""
