"""The kinds of the Multi-Cluster Services API.

https://github.com/kubernetes/enhancements/tree/master/keps/sig-multicluster/1645-multi-cluster-services-api
"""

from __future__ import annotations

from pilot.config import indexes
from pilot.config.group_kind import MULTICLUSTER, GroupKind
from pilot.config.kind import RegistryKind
from pilot.config.kubernetes.service_export import ServiceExport, ServiceImport

SERVICE_EXPORT = RegistryKind(
    GroupKind(MULTICLUSTER, "ServiceExport"),
    ("v1alpha1",),
    ServiceExport,
    indexes={"named": indexes.object_name},
    push_reason="service",
)

SERVICE_IMPORT = RegistryKind(
    GroupKind(MULTICLUSTER, "ServiceImport"), ("v1alpha1",), ServiceImport, push_reason="service"
)
