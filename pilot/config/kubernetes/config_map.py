"""Kubernetes ConfigMap. https://kubernetes.io/docs/reference/kubernetes-api/config-and-storage-resources/config-map-v1/"""

from __future__ import annotations

from pilot.config.base import Lenient


class ConfigMap(Lenient, frozen=True):
    data: dict[str, str] = {}
    binary_data: dict[str, bytes] = {}
