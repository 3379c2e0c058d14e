"""Envoy resources as rows of tables: each module has HEAD and `rows(resources)`, of resources in proto JSON."""
