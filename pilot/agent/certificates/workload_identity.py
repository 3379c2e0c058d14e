"""The identity of the workload: selects the source of its certificate and serves the certificate to Envoy."""

from __future__ import annotations

import asyncio
import datetime
import pathlib
import random
from collections.abc import Coroutine
from typing import Any

from grpc import aio

from pilot.agent.agent_metrics import AgentMetrics
from pilot.agent.agent_settings import AgentSettings
from pilot.agent.certificates.ca_client import fetch_certificate
from pilot.agent.certificates.certificate_renewer import CertificateRenewer, write_certificate
from pilot.agent.certificates.sds_server import SecretDiscoveryService
from pilot.agent.certificates.secret_cache import SecretCache
from pilot.agent.certificates.secret_files import CHAIN, SecretFileWatcher
from pilot.agent.certificates.workload_certificate import WorkloadCertificate, check_key_settings
from pilot.agent.proxy.proxy_context import ProxyContext
from pilot.agent.unix_sockets import build_server, is_listening, sds_socket, serve
from pilot.agent.upstream_server import UpstreamServer
from pilot.lib.logging.log import scope
from pilot.lib.spiffe import identity

_log = scope("secretcache")


class WorkloadIdentity:
    """Obtains the certificate of one workload and serves it over SDS."""

    def __init__(
        self, proxy: ProxyContext, settings: AgentSettings, authority: UpstreamServer, metrics: AgentMetrics
    ) -> None:
        """Check the settings. Raises ValueError, with a message for the user, if they describe an unsupported key."""
        check_key_settings(settings.certificate)
        self._settings, self._authority, self._metrics = settings.certificate, authority, metrics
        self._identity = identity(settings.pod.trust_domain, proxy.namespace, proxy.service_account)
        self._extra_roots = "".join(f"{pem.strip()}\n" for pem in proxy.config.ca_certificates_pem).encode()
        self._socket = sds_socket(settings)
        self._secrets = SecretCache()
        self._files = SecretFileWatcher(self._secrets)

    async def start(self) -> tuple[aio.Server | None, list[Coroutine[Any, Any, None]]]:
        """Start serving. Returns the server and the coroutines to run in the background.

        Returns None as the server if another process already serves the socket. Raises StartError.
        """
        if is_listening(self._socket):
            _log.info("another process serves certificates on %s; using it", self._socket)
            return None, []
        server = build_server()
        server.add_generic_rpc_handlers((SecretDiscoveryService(self._secrets, self._files.watch).handlers(),))
        await serve(server, self._socket, private=True)
        if self._settings.file_mounted or pathlib.Path(CHAIN).exists():
            _log.info("serving the certificate files in %s", pathlib.Path(CHAIN).parent)
            self._files.watch_mounted()
            return server, [self._files.run()]
        return server, [self._files.run(), self._renewer().run()]

    def _renewer(self) -> CertificateRenewer:
        return CertificateRenewer(
            self._settings,
            self._fetch,
            self._update,
            self._metrics.ca_request_failed,
            _utc_now,
            asyncio.sleep,
            random.random,
        )

    async def _fetch(self) -> WorkloadCertificate:
        self._metrics.ca_request_sent()
        return await fetch_certificate(self._authority, self._settings, self._identity, self._extra_roots)

    def _update(self, certificate: WorkloadCertificate) -> None:
        self._secrets.put_certificate(certificate)
        self._metrics.certificate_updated(certificate.not_after)
        if self._settings.output_directory:
            try:
                write_certificate(self._settings.output_directory, certificate)
            except OSError as error:
                _log.error("cannot write the certificate to %s: %s", self._settings.output_directory, error.strerror)


def _utc_now() -> datetime.datetime:
    return datetime.datetime.now(datetime.UTC)
