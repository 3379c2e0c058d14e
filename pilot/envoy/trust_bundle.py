"""Builds the proxy config that tells companions of proxies which roots there are. Envoy knows nothing of it."""

from __future__ import annotations

from collections.abc import Mapping

from pilot.derive import derived
from pilot.envoy.resource import Resource
from pilot.lib.xds_types import PROXY_CONFIG
from pilot.mesh.tables.database import Mesh
from pilot.mesh.tables.trust_bundle import trust_bundle
from protos.istio import mesh_proxy_config_pb2


@derived
def trusted_roots(db: Mesh) -> Mapping[str, Resource]:
    """Returns the one resource, which has no name."""
    config = mesh_proxy_config_pb2.ProxyConfig(ca_certificates_pem=trust_bundle(db))
    return {"": Resource.of(PROXY_CONFIG, config, name="")}
