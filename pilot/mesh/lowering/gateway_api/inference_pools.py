"""InferencePools: the Service that stands for the pods of each, and the endpoint picker that chooses among them.

That Service is an object of the cluster, which is written for the pool (`writers.shadow_services`), for so its endpoints are found as any other's.
Its labels say what it is, and who picks.
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
_LONGEST, _DIGITS = 63, 8


def shadow_name(pool: str) -> str:
    """Returns the name of the Service of a pool."""
    end = f"-ip-{hashlib.sha256(pool.encode()).hexdigest()[:_DIGITS]}"
    return pool[: _LONGEST - len(end)] + end


def shadow_ref(db: Mesh, namespace: str, pool: str) -> ServiceRef:
    """Returns the service of a pool."""
    return ServiceRef(kubernetes_hostname(shadow_name(pool), namespace, db.settings.registry.domain), namespace)


def shadow_labels(pool: str, service: str, port: int, failure_mode: str) -> Mapping[str, str]:
    """Returns the labels of the Service of a pool."""
    return {
        POOL_LABEL: pool,
        PICKER_SERVICE: service,
        PICKER_PORT: str(port),
        FAILURE_MODE: failure_mode,
        SEMANTICS: POOL_SEMANTICS,
    }


def picker_of(db: Mesh, found: Service) -> EndpointPicker | None:
    """Returns who picks the endpoints of a pool's service, by its labels; None where they do not say."""
    labels = dict(found.labels)
    name, port, mode = labels.get(PICKER_SERVICE), labels.get(PICKER_PORT, ""), labels.get(FAILURE_MODE)
    if not name or not mode or not port.isdecimal() or not 0 < int(port) < 1 << 16:
        return None
    return EndpointPicker(
        kubernetes_hostname(name, found.namespace, db.settings.registry.domain), int(port), mode == FAIL_OPEN
    )
