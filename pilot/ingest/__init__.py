"""Reads configuration from files, API servers and MCP servers, and commits it to the tables."""
