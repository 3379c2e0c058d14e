"""Pods as plain data: their schema, normalization, strategic merge and JSON patches."""
