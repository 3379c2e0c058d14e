"""Fixtures and fakes that tests and benchmarks share."""
