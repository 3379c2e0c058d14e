"""Issuers' JSON Web Key Sets. They are fetched in the background, cached on disk, and written to a table."""
