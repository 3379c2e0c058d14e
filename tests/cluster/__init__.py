"""A cluster in one process tree, and the installation run on it as users run it: `make cluster`."""
