"""Tracing: sampling, span tags, and the tracers that report spans."""
