"""Kubernetes Secret. https://kubernetes.io/docs/reference/kubernetes-api/config-and-storage-resources/secret-v1/"""
from __future__ import annotations

from pilot.model.config.base import Lenient


class Secret(Lenient, frozen=True):
    """`data` decoded, with what `stringData` lays over it."""

    type: str = "Opaque"
    data: dict[str, bytes] = {}

    def __repr__(self) -> str:
        return f"Secret(type={self.type!r}, data={sorted(self.data)} hidden)"
