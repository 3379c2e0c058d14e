"""State of the mesh, derived from configuration.

The import below registers the objects that are converted from other kinds, so that no kind can be read without them.
"""

import pilot.mesh.lowering  # noqa: F401
