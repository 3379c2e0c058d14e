"""The webhooks of a process: their port, its certificate, and where the injector's configuration comes from."""

from __future__ import annotations

import asyncio
import re
import ssl
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from aiohttp import web

from pilot.bootstrap.part import Part
from pilot.bootstrap.ports import HttpPort
from pilot.bootstrap.server_certificate import PortCertificate
from pilot.config.catalogue import CATALOGUE
from pilot.config.kinds.istio import PROXY_CONFIG
from pilot.config.kinds.kubernetes import CONFIG_MAP, NAMESPACE, NODE
from pilot.config.mesh.mesh_config import MeshConfig
from pilot.config.object import RegistryKey, age
from pilot.ingest.batch import Commit
from pilot.lib.flags import FlagError
from pilot.lib.metrics import Metrics
from pilot.mesh.tables.database import Mesh
from pilot.settings import Settings
from pilot.xds.address import Address
from pilot.xds.http import add_ready
from webhook.inject.openshift import proxy_ids
from webhook.inject.proxy_config import ProxyConfigObject
from webhook.inject.request import PROXY_ID
from webhook.server.application import Webhooks as Application
from webhook.server.folder import InjectorFolder
from webhook.server.injector import InjectionSurroundings, Injector

NATIVE_SINCE = (1, 33)
_VERSION = re.compile(r"v?(\d+)\.(\d+)")
_MODES = {"true": True, "false": False, "auto": None}


class WebhooksPart:
    """Everything that the API server asks. `certificate` is that of the port with TLS. FlagError where a setting cannot be understood."""

    def __init__(
        self,
        settings: Settings,
        mesh: Callable[[], MeshConfig],
        db: Mesh,
        metrics: Metrics,
        certificate: PortCertificate,
    ) -> None:
        self._settings, self._db, self._certificate = settings, db, certificate
        mode = settings.webhook.native_sidecars.lower()
        if mode not in _MODES:
            raise FlagError(f"ENABLE_NATIVE_SIDECARS {mode!r} is none of {', '.join(_MODES)}")
        self._native = _MODES[mode]
        openshift = settings.webhook.platform == "openshift"
        self.surroundings = around = InjectionSurroundings(
            mesh,
            self._is_native,
            proxy_configs=self._proxy_configs,
            proxy_ids=self._proxy_ids if openshift else lambda _: (PROXY_ID, PROXY_ID),
            resets_users=openshift,
            revision=settings.ingest.revision,
            compliance_policy=settings.mesh.tls.compliance_policy,
        )
        self.injector = Injector(around) if settings.webhook.inject else None
        self._folder = InjectorFolder(settings.webhook.folder, self.injector) if self.injector is not None else None
        self._application = Application(self.injector, CATALOGUE, metrics)
        self._revision = settings.ingest.revision
        name = (
            f"istio-sidecar-injector-{self._revision}"
            if self._revision not in ("", "default")
            else "istio-sidecar-injector"
        )
        self._key = RegistryKey(settings.mesh.registry.cluster_id, settings.mesh.registry.namespace, name)
        self._port: HttpPort | None = None
        self._taking: asyncio.Task[None] | None = None

    @property
    def templates(self) -> Mapping[str, str] | None:
        """Returns the texts of the templates that pods are injected with now, None where no pod is."""
        config = self.injector.config if self.injector is not None else None
        return None if config is None else config.written.templates

    def add_to(self, app: web.Application) -> None:
        """Adds the webhooks to an HTTP application."""
        self._application.add_to(app)

    def make_port(self, address: Address, is_ready: Callable[[], bool]) -> HttpPort:
        """Returns the port with TLS. It does not listen where nobody issues a certificate for it."""
        app = web.Application(client_max_size=0)
        self.add_to(app)
        add_ready(app, is_ready)
        self._port = HttpPort(app, address, self._context)
        return self._port

    def parts(self) -> Iterator[Part]:
        """Yields what must have started before the port."""
        if self._settings.webhook.address:
            yield Part("the certificate of the webhooks", self._certificate.start, self._certificate.stop)
        yield Part("the injector's configuration", self._start, self._stop)

    def committed(self, commit: Commit) -> None:
        """Takes the injector's ConfigMap where a batch changed it."""
        if any(table == "config_maps" and key == self._key for table, key, _ in commit.edits):
            self._taking = asyncio.create_task(self._take_config_map(), name="take the injector's ConfigMap")

    def _context(self) -> ssl.SSLContext | None:
        """Returns what handshakes are done with; another certificate is taken without closing the port."""
        first = self._certificate.context
        if first is not None:
            first.sni_callback = lambda connection, name, context: _use(connection, self._certificate.context)
        return first

    async def _start(self) -> None:
        if self._folder is not None and self._folder.exists:
            await self._folder.start()
        else:
            await self._take_config_map()

    async def _stop(self) -> None:
        if self._taking is not None:
            await asyncio.wait((self._taking,))
        if self._folder is not None:
            await self._folder.stop()
        self._application.close()

    async def _take_config_map(self) -> None:
        found: Any = CONFIG_MAP.table(self._db).peek(self._key)
        if self.injector is None or found is None or (self._folder is not None and self._folder.exists):
            return
        data = found.spec.data
        if "config" in data and "values" in data:
            await self.injector.take_beside(data["config"], data["values"])

    def _is_native(self, cluster: str, node: str) -> bool:
        """Returns whether proxies run as init containers: as it is set, else where the node, or every node of the cluster, can do so."""
        if self._native is not None:
            return self._native
        rows = {
            key.name: row.spec.status.node_info.kubelet_version
            for key, row in list(NODE.table(self._db).rows())
            if key.cluster == cluster
        }
        versions = [rows[node]] if node in rows else list(rows.values())
        return bool(versions) and all(_minor(version) >= NATIVE_SINCE for version in versions)

    def _proxy_configs(self) -> Iterator[ProxyConfigObject]:
        """Yields the objects of the kind ProxyConfig, oldest first."""
        found = (PROXY_CONFIG.get(self._db, key) for key in PROXY_CONFIG.all_keys(self._db))
        for o in sorted((o for o in found if o is not None), key=age):
            yield ProxyConfigObject(
                o.namespace,
                o.created,
                o.spec.selector.match_labels if o.spec.selector is not None else {},
                o.spec.concurrency,
                o.spec.environment_variables,
                o.spec.image.image_type if o.spec.image is not None else "",
            )

    def _proxy_ids(self, namespace: str) -> tuple[int, int]:
        key = RegistryKey(self._key.cluster, "", namespace)
        found: Any = NAMESPACE.table(self._db).peek(key)
        return proxy_ids(found.annotations if found is not None else {})


def _use(connection: Any, context: ssl.SSLContext | None) -> None:
    if context is not None and connection.context is not context:
        connection.context = context


def _minor(version: str) -> tuple[int, int]:
    found = _VERSION.match(version)
    return (int(found[1]), int(found[2])) if found else (0, 0)
