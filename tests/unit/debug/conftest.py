"""Fixtures of the debug pages, for every test in this folder."""

from testing.mesh.debug_pages import ask, client, pages

__all__ = ["ask", "client", "pages"]
