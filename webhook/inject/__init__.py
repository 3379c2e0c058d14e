"""Injection: which pods get a proxy, and what is added to them."""
