"""Kubernetes' Ingress kinds."""

from __future__ import annotations

from pilot.config.group_kind import GroupKind
from pilot.config.kind import Kind
from pilot.config.kubernetes.ingress import Ingress, IngressClass

INGRESS = Kind(GroupKind("networking.k8s.io", "Ingress"), ("v1",), Ingress)

INGRESS_CLASS = Kind(GroupKind("networking.k8s.io", "IngressClass"), ("v1",), IngressClass, namespaced=False)
