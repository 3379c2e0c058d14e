"""The debug pages. Each module contains one page or a group of pages."""
