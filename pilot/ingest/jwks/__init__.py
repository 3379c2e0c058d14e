"""JSON Web Key Sets of issuers: fetched in the background, cached on disk, and written to a table."""
