"""Spans: how many, with which tags, and the tracer that they go to."""
