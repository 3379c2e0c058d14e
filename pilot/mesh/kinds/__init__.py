"""The objects of each kind, a module a kind: nothing else reads the kind's table, so that what follows from other kinds can join."""
