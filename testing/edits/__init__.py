"""Random edits of meshes, and edits made for one read of a table."""
