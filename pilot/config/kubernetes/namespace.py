"""Kubernetes Namespace: its labels and annotations are all that matters."""

from __future__ import annotations

from pilot.config.base import Lenient


class Namespace(Lenient, frozen=True):
    """A namespace that no object declares exists too, without labels: its row is absent."""
