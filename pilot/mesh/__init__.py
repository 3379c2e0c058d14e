"""Derives the state of the mesh from configuration.

The import below registers the objects that are derived from other kinds, so that no kind can be read without them.
"""

import pilot.mesh.lowering  # noqa: F401
