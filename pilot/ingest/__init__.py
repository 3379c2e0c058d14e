"""From files to table rows: decode, debounce, commit."""
