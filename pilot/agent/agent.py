"""The agent of one proxy: composition, startup and shutdown."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import signal
import time
from collections.abc import Callable, Coroutine, Mapping
from typing import Any

from grpc import aio

from pilot.agent.agent_metrics import AgentMetrics
from pilot.agent.agent_settings import AgentSettings
from pilot.agent.certificates.platform_token import platform_token
from pilot.agent.certificates.workload_identity import WorkloadIdentity
from pilot.agent.dns.dns_server import DnsServer, read_resolvers
from pilot.agent.dns.lookup_table import NAME_TABLE, LookupTable
from pilot.agent.envoy.admin_client import AdminClient, AdminError, AsyncAdminClient
from pilot.agent.envoy.envoy_drain import drain, drain_path
from pilot.agent.envoy.envoy_process import EnvoyProcess, build_arguments, write_bootstrap
from pilot.agent.envoy.proxy_bootstrap import build_proxy_bootstrap
from pilot.agent.grpc_bootstrap import build_grpc_bootstrap, grpc_bootstrap_path, write_grpc_bootstrap
from pilot.agent.proxy.proxy_context import ProxyContext, read_proxy_context
from pilot.agent.proxy.server_address import parse_address
from pilot.agent.resident_memory import release_memory
from pilot.agent.status_port.app_probes import Prober, parse_probes
from pilot.agent.status_port.merged_metrics import MetricsTarget, parse_targets
from pilot.agent.status_port.readiness import Readiness
from pilot.agent.status_port.status_server import StatusPages, StatusServer
from pilot.agent.unix_sockets import build_server, serve, xds_socket
from pilot.agent.upstream_server import ca_upstream, xds_upstream
from pilot.agent.wasm.extension_rewriter import ExtensionRewriter
from pilot.agent.wasm.module_cache import build_module_cache, purge_forever
from pilot.agent.xds.agent_subscriptions import AgentSubscriptions
from pilot.agent.xds.xds_proxy import XdsProxy
from pilot.lib.logging.log import scope
from pilot.lib.malloc import map_large_allocations, use_one_arena
from pilot.lib.start_error import StartError

SIGNALS = (signal.SIGTERM, signal.SIGINT)
CA_HEADERS, XDS_HEADERS = "CA_HEADER_", "XDS_HEADER_"
RELEASE_SECONDS = (0.5, 1.5, 10.0, 60.0, 600.0)
"""Intervals in seconds at which the agent releases memory. The last one repeats."""
_log = scope("default")


def run(proxy_type: str, settings: AgentSettings, environ: Mapping[str, str]) -> int:
    """Run the agent of a proxy until it receives a signal or Envoy exits. Returns the exit status.

    Raises StartError.
    """
    try:
        proxy = read_proxy_context(proxy_type, settings, environ)
    except ValueError as error:
        raise StartError(str(error)) from error
    use_one_arena()
    map_large_allocations()
    release_memory()
    return asyncio.run(_run(proxy, settings, environ))


async def _run(proxy: ProxyContext, settings: AgentSettings, environ: Mapping[str, str]) -> int:
    try:
        agent = Agent(proxy, settings, environ)
    except ValueError as error:
        raise StartError(str(error)) from error
    async with contextlib.AsyncExitStack() as stack:
        return await agent.run(stack)


class Agent:
    """The agent of one proxy. Bound to one event loop."""

    def __init__(self, proxy: ProxyContext, settings: AgentSettings, environ: Mapping[str, str]) -> None:
        """Create the components of the agent.

        Raises ValueError, with a message for the user, if a setting is invalid. Raises StartError if a port is in use.
        """
        self._proxy, self._settings, self._config = proxy, settings, proxy.config
        self._loopback = "::1" if ":" in proxy.addresses[0] else "127.0.0.1"
        self._admin, self._metrics = AdminClient(self._loopback, self._config.proxy_admin_port), AgentMetrics()
        self._readiness = Readiness(None if settings.envoy.disable else self._admin)
        plaintext, address = self._config.control_plane_auth_policy == "NONE", self._config.discovery_address
        authority = ca_upstream(settings.control_plane, address, _headers(environ, CA_HEADERS))
        metadata = proxy.metadata if settings.certificate.file_mounted else None
        upstream = xds_upstream(settings.control_plane, address, plaintext, _headers(environ, XDS_HEADERS), metadata)
        self._token = platform_token(settings)
        self._identity = WorkloadIdentity(proxy, settings, authority, self._metrics)
        resolvers = read_resolvers()
        self._names = LookupTable(proxy.namespace, proxy.domain, resolvers.search)
        self._serves_dns = settings.dns.capture or (settings.dns.on_gateways and proxy.type == "router")
        self._dns = DnsServer(self._names, resolvers.servers, settings.dns.forward_timeout.seconds, self._metrics)
        self._dns_address = parse_address("variable DNS_PROXY_ADDR", settings.dns.address)
        subscriptions = AgentSubscriptions({NAME_TABLE: self._names.update} if self._serves_dns else {})
        self._modules = build_module_cache(settings.modules, self._config.config_path, self._metrics)
        self._xds = XdsProxy(upstream, subscriptions, self._metrics, ExtensionRewriter(self._modules, self._metrics))
        self._bootstrap = build_proxy_bootstrap(proxy, settings)
        self._shutdown, self._loop = asyncio.Event(), asyncio.get_running_loop()
        self._status = StatusServer(self._config.status_port, self._status_pages())

    async def run(self, stack: contextlib.AsyncExitStack) -> int:
        """Run until shutdown or until Envoy exits. Returns the exit status. Raises StartError.

        Closing `stack` stops everything that was started.
        """
        for number in SIGNALS:
            self._loop.add_signal_handler(number, self._shutdown.set)
        stack.callback(self._status.stop)
        self._status.start()
        if self._token is not None:
            await self._token.refresh()
            _start(stack, self._token.keep_fresh(time.time, asyncio.sleep))
        server, background = await self._identity.start()
        if server is not None:
            stack.push_async_callback(server.stop, None)
        for work in (*background, _release_memory(), purge_forever(self._modules, self._settings.modules)):
            _start(stack, work)
        await self._serve_xds(stack)
        if path := grpc_bootstrap_path(self._proxy, self._settings):
            write_grpc_bootstrap(path, build_grpc_bootstrap(self._proxy, self._settings))
        if self._serves_dns:
            await self._dns.start(*self._dns_address)
            stack.push_async_callback(self._dns.stop)
        if self._settings.envoy.disable:
            await self._shutdown.wait()
            return 0
        write_bootstrap(self._proxy, self._settings.envoy, self._bootstrap)
        envoy = await EnvoyProcess.start(self._config.binary_path, build_arguments(self._proxy, self._settings))
        stack.push_async_callback(envoy.stop)
        return await self._supervise(envoy)

    async def _serve_xds(self, stack: contextlib.AsyncExitStack) -> aio.Server:
        server = build_server()
        server.add_generic_rpc_handlers((self._xds.handlers(),))
        await serve(server, xds_socket(self._config), private=False)
        stack.push_async_callback(server.stop, None)
        return server

    async def _supervise(self, envoy: EnvoyProcess) -> int:
        """Wait until Envoy exits. On shutdown, drain and stop it. Returns the exit status."""
        exited, shutdown = asyncio.ensure_future(envoy.wait()), asyncio.ensure_future(self._shutdown.wait())
        await asyncio.wait((exited, shutdown), return_when=asyncio.FIRST_COMPLETED)
        if exited.done():
            shutdown.cancel()
            _log.error("Envoy exited unexpectedly with status %d", exited.result())
            return exited.result() if exited.result() > 0 else 1
        self._readiness.draining = True
        self._shutdown.clear()  # a second signal skips the drain
        drained, forced = asyncio.ensure_future(self._drain()), asyncio.ensure_future(self._shutdown.wait())
        await asyncio.wait((exited, drained, forced), return_when=asyncio.FIRST_COMPLETED)
        drained.cancel()
        forced.cancel()
        await envoy.stop()
        _log.info("Envoy has stopped")
        return 0

    async def _drain(self) -> None:
        envoy = self._settings.envoy
        duration, minimum = self._config.termination_drain_duration.seconds, envoy.minimum_drain.seconds
        static_ports = (envoy.readiness_port, envoy.prometheus_port)
        await drain(
            AsyncAdminClient(self._admin),
            self._proxy.type,
            duration,
            minimum,
            envoy.exit_on_zero_connections,
            static_ports,
            asyncio.sleep,
        )

    def _status_pages(self) -> StatusPages:
        """Return the content that the status port serves.

        Raises ValueError, with a message for the user, if a setting is invalid.
        """
        status, port = self._settings.status, self._config.status_port
        envoy = (
            []
            if self._settings.envoy.disable or not status.merges_envoy
            else [MetricsTarget("envoy", self._loopback, self._config.proxy_admin_port, "/stats/prometheus")]
        )
        # Only sidecars have an application. On a gateway, this port may be exposed to clients.
        app = parse_targets(status.prometheus_scrape, self._loopback, port) if self._proxy.type == "sidecar" else []
        prober = Prober(parse_probes(status.app_probers), self._proxy.addresses[0], port)
        commands = {"/quitquitquit": self._quit, "/drain": self._start_drain}
        return StatusPages(self._readiness, prober, self._metrics, (*envoy, *app), commands)

    def _quit(self) -> None:
        self._loop.call_soon_threadsafe(self._shutdown.set)

    def _start_drain(self) -> None:
        try:
            self._admin.request("POST", drain_path(self._proxy.type))
        except AdminError as error:
            _log.warning("cannot start draining Envoy: %s", error)


def _start(stack: contextlib.AsyncExitStack, work: Coroutine[Any, Any, None]) -> None:
    """Run a coroutine in the background until the stack is closed.

    Its errors are bugs and are logged with a traceback.
    """
    task = asyncio.ensure_future(work)
    task.add_done_callback(_log_bug)
    cancel: Callable[[], object] = task.cancel
    stack.callback(cancel)


async def _release_memory() -> None:
    for seconds in itertools.chain(RELEASE_SECONDS, itertools.repeat(RELEASE_SECONDS[-1])):
        await asyncio.sleep(seconds)
        release_memory()


def _log_bug(task: asyncio.Future[None]) -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        _log.error("a background task of the agent failed", exc_info=error)


def _headers(environ: Mapping[str, str], prefix: str) -> dict[str, str]:
    """Return the headers in environment variables whose names are the prefix followed by the header's name."""
    return {name.removeprefix(prefix): value for name, value in environ.items() if name.startswith(prefix)}
