"""JSON web tokens that a workload understands: the RequestAuthentications that apply to it.

https://istio.io/latest/docs/reference/config/security/request_authentication/
"""
from __future__ import annotations

from pilot.derive import derived, hub
from pilot.model.config.object import Object, age
from pilot.model.config.request_authentication import JWTRule, RequestAuthentication
from pilot.model.facets import Labels
from pilot.model.inputs import Mesh
from pilot.model.views.kinds.request_authentications import request_authentications
from pilot.model.views.mesh import mesh_config


@hub
def _policies(db: Mesh, namespace: str) -> tuple[Object[RequestAuthentication], ...]:
    """The policies of a namespace that select workloads by labels, oldest first."""
    rows = [row for key in request_authentications.keys(db, "namespace", namespace) if (row := request_authentications.get(db, key)) is not None]
    return tuple(sorted((o for o in rows if o.spec.target_ref is None and not o.spec.target_refs), key=age))


@derived
def jwt_rules(db: Mesh, namespace: str, labels: Labels) -> tuple[JWTRule, ...]:
    """The rules for a workload, of its own namespace and of the root namespace, sorted by issuer."""
    root = mesh_config(db).root_namespace
    found = [o for n in dict.fromkeys((namespace, root)) for o in _policies(db, n) if _selects(o.spec, labels)]
    return tuple(sorted((rule for o in found for rule in o.spec.jwt_rules), key=lambda r: r.issuer))


def _selects(spec: RequestAuthentication, labels: Labels) -> bool:
    return spec.selector is None or spec.selector.match_labels.items() <= labels
