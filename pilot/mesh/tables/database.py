"""The database: a table for each kind of configuration, and the other inputs of derived functions."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping
from typing import Any, NamedTuple

from pilot.config.catalogue import CATALOGUE, Catalogue
from pilot.config.kubernetes.pod import Pod
from pilot.config.object import Object, ObjectKey
from pilot.config.problem import ObjectRef
from pilot.config.security.request_authentication import JwksKey
from pilot.derive import Database, Node, Table
from pilot.mesh.model.nack import Nack, NackKey
from pilot.mesh.model.proxy import Proxy
from pilot.mesh.model.telemetry_features import unsupported_telemetry
from pilot.settings.mesh import MeshSettings


class AccountKey(NamedTuple):
    """A service account in a cluster."""

    cluster: str
    namespace: str
    name: str


EVERY_ACCOUNT = AccountKey("", "", "")
MESH_CONFIG, KEY_SETS, RESOLVED_HOSTS, POD_TEMPLATES = "MeshConfig", "JsonWebKeySet", "ResolvedHost", "PodTemplate"
"""Names of the tables that are written by configuration sources."""
ALLOCATED_ADDRESSES, REMEMBERED = "AllocatedAddresses", "remembered"
"""The table of allocated addresses, and the key of its row."""


class Mesh(Database):
    """The database from which all resources are derived.

    The table of a kind is read through the kind, as in `VIRTUAL_SERVICE.get(db, key)`. The other tables are attributes.
    `settings`, `catalogue` and `environment` (the environment variables of the process) never change and are not
    tracked.
    """

    def __init__(
        self,
        settings: MeshSettings | None = None,
        catalogue: Catalogue = CATALOGUE,
        environment: Mapping[str, str] | None = None,
        on_failure: Callable[[Node, Exception], None] | None = None,
    ) -> None:
        super().__init__(on_failure)
        self.settings, self.catalogue, self.environment = settings or MeshSettings(), catalogue, dict(environment or {})
        for kind in catalogue:
            kind.create_table(self, self.settings.registry.domain)
        # The mesh config ("mesh"), which always exists, and the mesh networks ("networks").
        self.mesh: Table[str, Any] = Table(self, MESH_CONFIG)
        # The key sets of token issuers, once fetched.
        self.jwks: Table[JwksKey, str] = Table(self, KEY_SETS)
        # Proxies that are or were connected, by node ID.
        self.proxies: Table[str, Proxy] = Table(
            self, "Proxy", type=proxy_type, namespace=proxy_namespace, lacks=proxy_lacks
        )
        # Service accounts, and whether they may list the Secrets in their namespace, once this is reviewed. If no
        # review is possible, the only entry is EVERY_ACCOUNT.
        self.secret_access: Table[AccountKey, bool] = Table(self, "SecretAccess")
        # Rejections by connected proxies, until the proxy accepts a response of the same type.
        self.nacks: Table[NackKey, Nack] = Table(self, "Refusal", object=nacked_objects, rejection=rejection)
        # The addresses of the host names of network gateways, once resolved.
        self.resolved_hosts: Table[str, tuple[str, ...]] = Table(self, RESOLVED_HOSTS)
        # The addresses that have been allocated to hosts of ServiceEntries, in one row: by ServiceEntry, then by host.
        self.allocated_addresses: Table[str, Mapping[ObjectKey, Mapping[str, tuple[str, ...]]]] = Table(
            self, ALLOCATED_ADDRESSES
        )
        # The roots of the mesh's own authorities, as a PEM bundle for each source. Empty if proxies receive no roots.
        self.authority_roots: Table[str, tuple[str, ...]] = Table(self, "AuthorityRoots")
        # The Pod templates of workloads such as Deployments. Only analyses of files have any.
        self.pod_templates: Table[ObjectRef, Object[Pod]] = Table(self, POD_TEMPLATES, namespace=template_namespace)
        # The current time ("now") in Unix seconds, for checks of expiry. It advances every few minutes.
        self.clock: Table[str, float] = Table(self, "Clock")


Buckets = Iterable[Hashable]


def proxy_type(_: str, proxy: Proxy) -> Buckets:
    return (proxy.type,)


def nacked_objects(_: NackKey, nack: Nack) -> Buckets:
    return nack.objects


def rejection(_: NackKey, nack: Nack) -> Buckets:
    """Return the type and the objects of a rejection. Proxies that reject the same objects share the bucket."""
    return ((nack.type_name, nack.objects),)


def template_namespace(key: ObjectRef, _: Object[Pod]) -> Buckets:
    return (key.namespace,)


def proxy_namespace(_: str, proxy: Proxy) -> Buckets:
    return (proxy.namespace,)


def proxy_lacks(_: str, proxy: Proxy) -> Buckets:
    """Return the namespace of a proxy and the telemetry features that its build lacks, or () if it has all features."""
    return ((proxy.namespace, lacks),) if (lacks := unsupported_telemetry(proxy)) else ()
