"""Where the workload's certificate comes from, and the socket on which Envoy gets it."""

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
from pilot.agent.envoy.proxy_bootstrap import sds_socket
from pilot.agent.proxy.proxy_context import ProxyContext
from pilot.agent.unix_sockets import build_server, is_listening, serve
from pilot.agent.upstream_server import UpstreamServer
from pilot.lib.log import scope
from pilot.lib.spiffe import identity

_log = scope("secretcache")


class WorkloadIdentity:
    """Serves the secrets of one workload."""

    def __init__(
        self, facts: ProxyContext, settings: AgentSettings, authority: UpstreamServer, metrics: AgentMetrics
    ) -> None:
        """ValueError, a sentence for the user, where the settings ask for what does not exist."""
        check_key_settings(settings.certificate)
        self._facts, self._settings, self._authority, self._metrics = facts, settings.certificate, authority, metrics
        self._name = identity(settings.pod.trust_domain, facts.namespace, facts.service_account)
        self._more_roots = "".join(f"{pem.strip()}\n" for pem in facts.proxy.config.ca_certificates_pem).encode()
        self._socket = sds_socket(settings)
        self._secrets = SecretCache()
        self._files = SecretFileWatcher(self._secrets)

    async def start(self) -> tuple[aio.Server | None, list[Coroutine[Any, Any, None]]]:
        """Returns the server, and what is to run beside it; no server where somebody else serves the socket. StartError where it cannot."""
        if is_listening(self._socket):
            _log.info("certificates come from who serves %s", self._socket)
            return None, []
        server = build_server()
        server.add_generic_rpc_handlers((SecretDiscoveryService(self._secrets, self._files.wanted).handlers(),))
        await serve(server, self._socket, private=True)
        if self._settings.mounted or pathlib.Path(CHAIN).exists():
            _log.info("the certificate below %s is served, no authority is asked", pathlib.Path(CHAIN).parent)
            self._files.add_mounted()
            return server, [self._files.follow()]
        return server, [self._files.follow(), self._keeper().run()]

    def _keeper(self) -> CertificateRenewer:
        return CertificateRenewer(
            self._settings, self._fetch, self._take, self._metrics.not_issued, _utc_now, asyncio.sleep, random.random
        )

    async def _fetch(self) -> WorkloadCertificate:
        self._metrics.asked_authority()
        return await fetch_certificate(self._authority, self._settings, self._name, self._more_roots)

    def _take(self, certificate: WorkloadCertificate) -> None:
        self._secrets.put_certificate(certificate)
        self._metrics.certificate(certificate)
        if self._settings.output:
            try:
                write_certificate(self._settings.output, certificate)
            except OSError as error:
                _log.error("the certificate cannot be written to %s: %s", self._settings.output, error.strerror)


def _utc_now() -> datetime.datetime:
    return datetime.datetime.now(datetime.UTC)
