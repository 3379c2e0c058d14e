"""Control planes in this process, and their sources of configuration."""
