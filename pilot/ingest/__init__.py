"""Objects of files and API servers become rows of tables: they are decoded, debounced and committed."""
