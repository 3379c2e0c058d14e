"""The error of a failed injection."""

from __future__ import annotations


class InjectionError(Exception):
    """A Pod cannot be injected. The API server returns the message to the client that creates the Pod."""
