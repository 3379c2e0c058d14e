"""In-memory meshes, and their objects and debug pages."""
