"""Kubernetes Namespace, of which only labels and annotations matter."""

from __future__ import annotations

from pilot.config.base import Lenient


class Namespace(Lenient, frozen=True):
    """A Namespace. A namespace may exist without a row; then it has no labels."""
