"""Policies of workloads: their selectors have to select something, and of several that say the same only the oldest counts."""
from __future__ import annotations

from pilot.derive import derived
from pilot.model.checks.check import Check, told
from pilot.model.checks.selector import check_selector, label_sets, selected_anywhere, shown
from pilot.model.config.object import Object, ObjectKey, age
from pilot.model.config.peer_authentication import PeerAuthentication
from pilot.model.config.request_authentication import RequestAuthentication
from pilot.model.inputs import Mesh
from pilot.model.problem import Problem, Problems, below, warning
from pilot.model.views.kinds.peer_authentications import peer_authentications
from pilot.model.views.kinds.request_authentications import request_authentications
from pilot.model.views.mesh import root_namespace


@derived
def _peer_keys(db: Mesh) -> tuple[ObjectKey, ...]:
    return peer_authentications.all_keys(db)


@derived
def peer_authentication_problems(db: Mesh, key: ObjectKey) -> tuple[Problem, ...]:
    """Returns the problems of a PeerAuthentication with other objects."""
    found = peer_authentications.get(db, key)
    return told(found, below("spec.selector", _check_peer(db, found))) if found is not None else ()


def _check_peer(db: Mesh, o: Object[PeerAuthentication]) -> Problems:
    labels = _labels(o)
    if o.namespace == root_namespace(db) and labels:
        yield warning("selector-without-effect", "", "in the root namespace only a policy without a selector counts")
        return
    yield from check_selector(db, o.namespace, labels)
    for key in peer_authentications.keys(db, "namespace", o.namespace):
        other = peer_authentications.get(db, key)
        if other is None or age(other) >= age(o) or bool(_labels(other)) != bool(labels):
            continue
        both = labels.items() | _labels(other).items()
        if not labels or any(both <= have for have in label_sets(db, o.namespace)):
            yield warning("policy-shadowed", "", f"the older PeerAuthentication {key.namespace}/{key.name} has some of its workloads, or all")


def _labels(o: Object[PeerAuthentication]) -> dict[str, str]:
    return o.spec.selector.match_labels if o.spec.selector is not None else {}


PEER_AUTHENTICATIONS = Check("PeerAuthentication", _peer_keys, peer_authentication_problems)


@derived
def _request_keys(db: Mesh) -> tuple[ObjectKey, ...]:
    return request_authentications.all_keys(db)


@derived
def request_authentication_problems(db: Mesh, key: ObjectKey) -> tuple[Problem, ...]:
    """Returns the problems of a RequestAuthentication with other objects."""
    found = request_authentications.get(db, key)
    return told(found, below("spec.selector", _check_request(db, found))) if found is not None else ()


def _check_request(db: Mesh, o: Object[RequestAuthentication]) -> Problems:
    labels = o.spec.selector.match_labels if o.spec.selector is not None else {}
    if o.namespace != root_namespace(db):
        yield from check_selector(db, o.namespace, labels)
    elif labels and not selected_anywhere(db, labels, o.namespace):
        yield warning("selector-without-workloads", "", f"no workload has {shown(labels)}")


REQUEST_AUTHENTICATIONS = Check("RequestAuthentication", _request_keys, request_authentication_problems)
