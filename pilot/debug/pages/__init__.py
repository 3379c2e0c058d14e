"""The debug pages, one module per page or group of pages."""
