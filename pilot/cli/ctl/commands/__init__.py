"""The commands of pilotctl. Each has its own module."""
