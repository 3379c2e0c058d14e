"""The policies that ztunnels enforce."""

from __future__ import annotations

from collections.abc import Mapping

from pilot.config.kinds.gateway_api import KUBERNETES_GATEWAY
from pilot.config.kinds.istio import AUTHORIZATION_POLICY, PEER_AUTHENTICATION
from pilot.config.object import ObjectKey
from pilot.derive import Gather, derived
from pilot.envoy.resource import Resource
from pilot.envoy.ztunnel.policy_messages import (
    build_authorization,
    build_port_policy,
    build_static_strict,
    build_waypoint_policy,
)
from pilot.lib import spiffe
from pilot.lib.xds_types import AUTHORIZATION
from pilot.mesh.ambient.policies import allow_name, enforced, has_peer_authentications, port_policy
from pilot.mesh.ambient.waypoints import waypoint, waypoint_accounts
from pilot.mesh.registry.service_settings import service_rules
from pilot.mesh.tables.database import Mesh
from pilot.mesh.tables.mesh_config import root_namespace
from protos.istio import authorization_pb2 as pb


def _resource(authorization: pb.Authorization) -> Resource:
    return Resource.of(AUTHORIZATION, authorization, f"{authorization.namespace}/{authorization.name}")


@derived
def _authorization_keys(db: Mesh) -> tuple[ObjectKey, ...]:
    return AUTHORIZATION_POLICY.all_keys(db)


@derived
def _authorization(db: Mesh, key: ObjectKey) -> Resource | None:
    row = enforced(db, key)
    return _resource(build_authorization(row, root_namespace(db))) if row is not None else None


authorizations: Gather[ObjectKey, [], Resource] = Gather("authorizations", _authorization_keys, _authorization)
"""The ztunnel policies to which AuthorizationPolicies are converted."""


@derived
def _peer_keys(db: Mesh) -> tuple[ObjectKey, ...]:
    return PEER_AUTHENTICATION.all_keys(db)


@derived
def _port_policy(db: Mesh, key: ObjectKey) -> Resource | None:
    policy = port_policy(db, key)
    return _resource(build_port_policy(policy)) if policy is not None else None


port_policies: Gather[ObjectKey, [], Resource] = Gather("policies of ports", _peer_keys, _port_policy)
"""The ztunnel policies to which PeerAuthentications with port-level settings are converted."""


@derived
def strict_policy(db: Mesh) -> Mapping[str, Resource]:
    """Return the policy that requires mutual TLS. It exists only if there is at least one PeerAuthentication."""
    if not has_peer_authentications(db):
        return {}
    resource = _resource(build_static_strict(root_namespace(db)))
    return {resource.name: resource}


@derived
def _waypoint_keys(db: Mesh) -> tuple[ObjectKey, ...]:
    ambient = db.settings.ambient
    return KUBERNETES_GATEWAY.all_keys(db) if ambient.enabled and ambient.allow_waypoints else ()


@derived
def _waypoint_policy(db: Mesh, key: ObjectKey) -> Resource | None:
    accounts = waypoint_accounts(db, key) if waypoint(db, key) is not None else ()
    domain = service_rules(db).trust_domain
    principals = [spiffe.identity(domain, key.namespace, account).removeprefix(spiffe.PREFIX) for account in accounts]
    return _resource(build_waypoint_policy(allow_name(key), key.namespace, principals)) if principals else None


waypoint_policies: Gather[ObjectKey, [], Resource] = Gather("policies of waypoints", _waypoint_keys, _waypoint_policy)
"""The ztunnel policies that allow connections from waypoints."""
