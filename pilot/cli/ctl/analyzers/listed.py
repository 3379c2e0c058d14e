"""The list of all analyzers."""

from __future__ import annotations

from pilot.cli.ctl.analyzers.annotations import ANNOTATIONS
from pilot.cli.ctl.analyzers.conditions import CONDITIONS
from pilot.cli.ctl.analyzers.definitions import DEFINITION_VERSIONS, REMOVED_KINDS
from pilot.cli.ctl.analyzers.deployments import APPLICATION_USERS, SERVICES_OF_DEPLOYMENTS
from pilot.cli.ctl.analyzers.injection import AUTO_IMAGES, PROXY_IMAGES, SIDECAR_INJECTION
from pilot.cli.ctl.analyzers.istio_objects import (
    ENTRY_ADDRESSES,
    INGRESS_SUBSETS,
    INTERNAL_GATEWAYS,
    PATCH_OPERATIONS,
    SERVER_ROOTS,
    SHARED_CERTIFICATES,
)
from pilot.cli.ctl.analyzers.networks import NETWORKS
from pilot.cli.ctl.analyzers.services import MULTICLUSTER_SERVICES, PORT_NAMES
from pilot.cli.ctl.analyzers.webhooks import EXTERNAL_CONTROL_PLANES, INJECTION_WEBHOOKS
from pilot.cli.ctl.analyzers.workload_selectors import AMBIENT_SIDECARS, GATEWAY_SELECTORS

ANALYZERS = (
    ANNOTATIONS,
    CONDITIONS,
    SERVICES_OF_DEPLOYMENTS,
    APPLICATION_USERS,
    SERVER_ROOTS,
    REMOVED_KINDS,
    PATCH_OPERATIONS,
    EXTERNAL_CONTROL_PLANES,
    SHARED_CERTIFICATES,
    SIDECAR_INJECTION,
    PROXY_IMAGES,
    AUTO_IMAGES,
    GATEWAY_SELECTORS,
    DEFINITION_VERSIONS,
    NETWORKS,
    MULTICLUSTER_SERVICES,
    PORT_NAMES,
    AMBIENT_SIDECARS,
    ENTRY_ADDRESSES,
    INGRESS_SUBSETS,
    INTERNAL_GATEWAYS,
    INJECTION_WEBHOOKS,
)
