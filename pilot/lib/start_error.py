"""The error for a process that cannot start."""


class StartError(Exception):
    """The process cannot start with its settings or in its environment. Users see the message."""
