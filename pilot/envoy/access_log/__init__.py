"""Access logs: loggers and their formats."""
