"""Helm's charts: read from folders and rendered by the template engine, without Helm."""
