"""What keeps a pod from being injected."""

from __future__ import annotations


class InjectionError(Exception):
    """A pod cannot be injected. The text is what the API server shows to who makes the pod."""
