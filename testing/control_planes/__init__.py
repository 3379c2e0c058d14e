"""In-process control planes, and their sources of configuration."""
