"""Outbound route configurations of sidecars, by segment: the virtual hosts of one namespace's services."""
