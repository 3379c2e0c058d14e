"""Reads, decodes and watches configuration files."""
