"""Fixtures and fakes shared by tests and benchmarks."""
