"""The agent of one proxy: its parts, wired, and how they end together."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import signal
from collections.abc import Callable, Coroutine, Mapping
from typing import Any

from grpc import aio

from pilot.agent.agent_metrics import AgentMetrics
from pilot.agent.agent_settings import AgentSettings
from pilot.agent.certificates.workload_identity import WorkloadIdentity
from pilot.agent.dns.dns_server import DnsServer, read_resolvers
from pilot.agent.dns.lookup_table import NAME_TABLE, LookupTable
from pilot.agent.envoy.admin_client import AdminClient, AdminError, AsyncAdminClient
from pilot.agent.envoy.envoy_bootstrap import parse_address
from pilot.agent.envoy.envoy_drain import drain, drain_path
from pilot.agent.envoy.envoy_process import Envoy, build_arguments, write_bootstrap
from pilot.agent.envoy.proxy_bootstrap import build_proxy_bootstrap, xds_socket
from pilot.agent.grpc_bootstrap import build_grpc_bootstrap, grpc_bootstrap_path, write_grpc_bootstrap
from pilot.agent.proxy.proxy_context import ProxyContext, read_proxy_context
from pilot.agent.resident_memory import prepare, release
from pilot.agent.status_port.app_probes import Prober, parse_probes
from pilot.agent.status_port.merged_metrics import MetricsTarget, parse_targets
from pilot.agent.status_port.readiness import Readiness
from pilot.agent.status_port.status_server import StatusPages, StatusServer
from pilot.agent.unix_sockets import build_server, serve
from pilot.agent.upstream_server import ca_upstream, xds_upstream
from pilot.agent.wasm.extension_rewriter import ExtensionRewriter
from pilot.agent.wasm.module_cache import build_module_cache, purge_forever
from pilot.agent.xds.agent_subscriptions import AgentSubscriptions
from pilot.agent.xds.xds_proxy import XdsProxy
from pilot.lib.log import scope
from pilot.lib.start_error import StartError

SIGNALS = (signal.SIGTERM, signal.SIGINT)
CA_HEADERS, XDS_HEADERS = "CA_HEADER_", "XDS_HEADER_"
RELEASE_SECONDS = (0.5, 1.5, 10.0, 60.0, 600.0)
"""Times between which memory is given back, the last of them again and again."""
_log = scope("default")


def run(kind: str, settings: AgentSettings, environ: Mapping[str, str]) -> int:
    """Runs the agent of a proxy of that type until a signal, or until Envoy ends; returns the exit status. StartError where it cannot."""
    try:
        facts = read_proxy_context(kind, settings, environ)
    except ValueError as error:
        raise StartError(str(error)) from error
    prepare()
    release()
    return asyncio.run(_run(facts, settings, environ))


async def _run(facts: ProxyContext, settings: AgentSettings, environ: Mapping[str, str]) -> int:
    try:
        agent = Agent(facts, settings, environ)
    except ValueError as error:
        raise StartError(str(error)) from error
    async with contextlib.AsyncExitStack() as stack:
        return await agent.run(stack)


class Agent:
    """Everything that one proxy needs beside it. For one event loop."""

    def __init__(self, facts: ProxyContext, settings: AgentSettings, environ: Mapping[str, str]) -> None:
        """ValueError, a sentence for the user, where facts or settings cannot be right. StartError where a port cannot be had."""
        self._facts, self._settings, self._config = facts, settings, facts.proxy.config
        self._loopback = "::1" if ":" in facts.addresses[0] else "127.0.0.1"
        self._admin, self._metrics = AdminClient(self._loopback, self._config.proxy_admin_port), AgentMetrics()
        self._readiness = Readiness(None if settings.envoy.disable else self._admin)
        plaintext, address = self._config.control_plane_auth_policy == "NONE", self._config.discovery_address
        authority = ca_upstream(settings.control_plane, address, _headers(environ, CA_HEADERS))
        mounted = facts.metadata if settings.certificate.mounted else None
        upstream = xds_upstream(settings.control_plane, address, plaintext, _headers(environ, XDS_HEADERS), mounted)
        self._identity = WorkloadIdentity(facts, settings, authority, self._metrics)
        resolvers = read_resolvers()
        self._names = LookupTable(facts.namespace, facts.domain, resolvers.search)
        self._answers_names = settings.dns.capture or (settings.dns.at_gateway and facts.type == "router")
        self._dns = DnsServer(self._names, resolvers.servers, settings.dns.timeout.seconds, self._metrics)
        self._dns_address = parse_address("variable DNS_PROXY_ADDR", settings.dns.address)
        own = AgentSubscriptions({NAME_TABLE: self._names.take} if self._answers_names else {})
        self._modules = build_module_cache(settings.modules, self._config.config_path, self._metrics)
        self._xds = XdsProxy(upstream, own, self._metrics, ExtensionRewriter(self._modules, self._metrics))
        self._bootstrap = build_proxy_bootstrap(facts, settings)
        self._end, self._loop = asyncio.Event(), asyncio.get_running_loop()
        self._status = StatusServer(self._config.status_port, self._pages())

    async def run(self, stack: contextlib.AsyncExitStack) -> int:
        """Returns the exit status once the proxy has ended. `stack` ends what is started here. StartError where something cannot start."""
        for number in SIGNALS:
            self._loop.add_signal_handler(number, self._end.set)
        stack.callback(self._status.stop)
        self._status.start()
        server, beside = await self._identity.start()
        if server is not None:
            stack.push_async_callback(server.stop, None)
        for work in (*beside, _release_memory(), purge_forever(self._modules, self._settings.modules)):
            _start(stack, work)
        await self._serve_xds(stack)
        if path := grpc_bootstrap_path(self._facts, self._settings):
            write_grpc_bootstrap(path, build_grpc_bootstrap(self._facts, self._settings))
        if self._answers_names:
            await self._dns.start(*self._dns_address)
            stack.push_async_callback(self._dns.stop)
        if self._settings.envoy.disable:
            await self._end.wait()
            return 0
        write_bootstrap(self._facts, self._bootstrap)
        envoy = await Envoy.start(self._config.binary_path, build_arguments(self._facts, self._settings))
        stack.push_async_callback(envoy.stop)
        return await self._live(envoy)

    async def _serve_xds(self, stack: contextlib.AsyncExitStack) -> aio.Server:
        server = build_server()
        server.add_generic_rpc_handlers((self._xds.handlers(),))
        await serve(server, xds_socket(self._config), private=False)
        stack.push_async_callback(server.stop, None)
        return server

    async def _live(self, envoy: Envoy) -> int:
        """Returns the exit status after Envoy ended by itself, or after it was drained and ended."""
        ended, told = asyncio.ensure_future(envoy.wait()), asyncio.ensure_future(self._end.wait())
        await asyncio.wait((ended, told), return_when=asyncio.FIRST_COMPLETED)
        if ended.done():
            told.cancel()
            _log.error("Envoy ended by itself with status %d", ended.result())
            return ended.result() if ended.result() > 0 else 1
        self._readiness.draining = True
        self._end.clear()  # a second signal ends at once
        draining, again = asyncio.ensure_future(self._drain()), asyncio.ensure_future(self._end.wait())
        await asyncio.wait((ended, draining, again), return_when=asyncio.FIRST_COMPLETED)
        draining.cancel()
        again.cancel()
        await envoy.stop()
        _log.info("Envoy has ended")
        return 0

    async def _drain(self) -> None:
        envoy = self._settings.envoy
        seconds, minimum = self._config.termination_drain_duration.seconds, envoy.minimum_drain.seconds
        own = (envoy.status_port, envoy.prometheus_port)
        await drain(
            AsyncAdminClient(self._admin), self._facts.type, seconds, minimum, envoy.exit_on_zero, own, asyncio.sleep
        )

    def _pages(self) -> StatusPages:
        """Returns what the status port serves. ValueError, a sentence for the user, where a setting of it cannot be right."""
        status, port = self._settings.status, self._config.status_port
        envoy = (
            []
            if self._settings.envoy.disable
            else [MetricsTarget("envoy", self._loopback, self._config.proxy_admin_port, "/stats/prometheus")]
        )
        # What a gateway says on this port is open to its clients; it has no application.
        app = parse_targets(status.scrape, self._loopback, port) if self._facts.type == "sidecar" else []
        prober = Prober(parse_probes(status.probers), self._facts.addresses[0], port)
        commands = {"/quitquitquit": self._quit, "/drain": self._drain_only}
        return StatusPages(self._readiness, prober, self._metrics, (*envoy, *app), commands)

    def _quit(self) -> None:
        self._loop.call_soon_threadsafe(self._end.set)

    def _drain_only(self) -> None:
        try:
            self._admin.request("POST", drain_path(self._facts.type))
        except AdminError as error:
            _log.warning("Envoy does not drain: %s", error)


def _start(stack: contextlib.AsyncExitStack, work: Coroutine[Any, Any, None]) -> None:
    """Runs work until the stack ends; an error in it, which is a bug, is logged with its trace."""
    task = asyncio.ensure_future(work)
    task.add_done_callback(_log_bug)
    cancel: Callable[[], object] = task.cancel
    stack.callback(cancel)


async def _release_memory() -> None:
    for seconds in itertools.chain(RELEASE_SECONDS, itertools.repeat(RELEASE_SECONDS[-1])):
        await asyncio.sleep(seconds)
        release()


def _log_bug(task: asyncio.Future[None]) -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        _log.error("a part of the agent has ended by an error", exc_info=error)


def _headers(environ: Mapping[str, str], prefix: str) -> dict[str, str]:
    """Returns the headers that variables with a prefix declare."""
    return {name.removeprefix(prefix): value for name, value in environ.items() if name.startswith(prefix)}
