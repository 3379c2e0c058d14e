"""The steps of `make cluster`: one user's task each, on a box of its own. A step returns what was seen."""
