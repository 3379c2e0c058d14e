"""Shadow Services of InferencePools, and the endpoint pickers that their labels name.

A shadow Service selects the pool's Pods. It is written to the cluster (`controllers.shadow_services`), so that its
endpoints are discovered like those of any other Service. Its labels identify the pool and the endpoint picker.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

from pilot.config.object import EndpointPicker
from pilot.mesh.model.service import POOL_SEMANTICS, SEMANTICS, Service, ServiceRef
from pilot.mesh.registry.kubernetes_services import kubernetes_hostname
from pilot.mesh.tables.database import Mesh

POOL_LABEL = "istio.io/inferencepool-name"
PICKER_SERVICE, PICKER_PORT = "istio.io/inferencepool-extension-service", "istio.io/inferencepool-extension-port"
FAILURE_MODE, FAIL_OPEN = "istio.io/inferencepool-extension-failure-mode", "FailOpen"
FIRST_PORT = 54321
_MAX_NAME_LENGTH, _DIGITS = 63, 8


def shadow_name(pool: str) -> str:
    """Return the name of a pool's shadow Service."""
    suffix = f"-ip-{hashlib.sha256(pool.encode()).hexdigest()[:_DIGITS]}"
    return pool[: _MAX_NAME_LENGTH - len(suffix)] + suffix


def shadow_ref(db: Mesh, namespace: str, pool: str) -> ServiceRef:
    """Return the key of the service that a pool's shadow Service declares."""
    return ServiceRef(kubernetes_hostname(shadow_name(pool), namespace, db.settings.registry.domain), namespace)


def shadow_labels(pool: str, service: str, port: int, failure_mode: str) -> Mapping[str, str]:
    """Return the labels of a pool's shadow Service."""
    return {
        POOL_LABEL: pool,
        PICKER_SERVICE: service,
        PICKER_PORT: str(port),
        FAILURE_MODE: failure_mode,
        SEMANTICS: POOL_SEMANTICS,
    }


def endpoint_picker_of(db: Mesh, shadow: Service) -> EndpointPicker | None:
    """Return the endpoint picker that the labels of a shadow Service name, or None if the labels are incomplete or
    invalid."""
    labels = dict(shadow.labels)
    name, port, mode = labels.get(PICKER_SERVICE), labels.get(PICKER_PORT, ""), labels.get(FAILURE_MODE)
    if not name or not mode or not port.isdecimal() or not 0 < int(port) < 1 << 16:
        return None
    return EndpointPicker(
        kubernetes_hostname(name, shadow.namespace, db.settings.registry.domain), int(port), mode == FAIL_OPEN
    )
