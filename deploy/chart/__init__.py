"""Helm charts, read from folders and rendered without Helm."""
