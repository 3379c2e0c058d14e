"""The error for a process that cannot start."""


class StartError(Exception):
    """The process cannot start with these settings in this environment. The text is for the user."""
