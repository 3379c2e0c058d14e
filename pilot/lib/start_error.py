"""Says why a process does not start."""


class StartError(Exception):
    """The process cannot do what it was told, or lacks what it needs; the text is for the user."""
