"""Outbound route configurations of sidecars.

They consist of segments. A segment has the virtual hosts for the services in one namespace.
"""
