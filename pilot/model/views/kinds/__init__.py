"""The objects of each kind of configuration, a module a kind: nothing else reads the kind's table."""
