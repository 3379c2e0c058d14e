"""The operator process: leader election, HTTP endpoints, and shutdown."""

from __future__ import annotations

import asyncio
import contextlib
import random
import secrets
import signal
from collections.abc import Mapping, Sequence

from aiohttp import web

from pilot.install.installer import WaitOptions
from pilot.kube.api_access import Credentials, InCluster, KubeconfigFile
from pilot.kube.api_client import ApiClient, RequestTimeouts
from pilot.kube.api_errors import KubeError
from pilot.kube.informer import WatchOptions
from pilot.kube.leader_election import LeaderElection, LeaseDurations
from pilot.kube.leader_lock import LEASE, Lock
from pilot.lib.logging.log import scope
from pilot.lib.start_error import StartError
from pilot.lib.tasks import cancel_tasks
from pilot.operator.deletion import is_operator_removed, remove_all_finalizers
from pilot.operator.istio_operator_controller import IstioOperatorController
from pilot.operator.operator_metrics import OperatorMetrics
from pilot.operator.operator_settings import WATCH_NAMESPACE, OperatorSettings

LOCK = "istio-operator-lock"
SIGNALS = (signal.SIGTERM, signal.SIGINT)
SHUTDOWN_SECONDS = 20.0
_log = scope("operator")


def run(settings: OperatorSettings, environ: Mapping[str, str]) -> None:
    """Run the operator until it receives a signal. Raises StartError."""
    if WATCH_NAMESPACE not in environ:
        raise StartError(f"{WATCH_NAMESPACE} must be set to comma-separated namespaces, or to an empty value for all")
    asyncio.run(_run(settings))


async def _run(settings: OperatorSettings) -> None:
    operator = Operator(settings, _credentials(settings))
    for number in SIGNALS:
        asyncio.get_running_loop().add_signal_handler(number, operator.stop)
    await operator.run()


def _credentials(settings: OperatorSettings) -> Credentials:
    return KubeconfigFile(settings.watch.kubeconfig) if settings.watch.kubeconfig else InCluster()


def parse_namespaces(text: str) -> Sequence[str] | None:
    """Return the namespaces in a comma-separated list, or None if the list is empty."""
    return list(dict.fromkeys(part.strip() for part in text.split(",") if part.strip())) or None


class Operator:
    """One replica of the operator. `port` is the port of its HTTP endpoints while it runs."""

    def __init__(
        self,
        settings: OperatorSettings,
        credentials: Credentials,
        watch: WatchOptions = WatchOptions(),
        poll_interval: float = 2.0,
        timeouts: RequestTimeouts = RequestTimeouts(),
    ) -> None:
        self._settings, self._metrics = settings, OperatorMetrics()
        self._namespaces, self._revision = parse_namespaces(settings.watch.namespaces), settings.watch.revision
        self._client = ApiClient(credentials, timeouts=timeouts)
        wait = WaitOptions(settings.watch.timeout.seconds, poll_interval)
        self.controller = IstioOperatorController(
            self._client, self._namespaces, self._revision, wait, watch, random.Random(), self._metrics
        )
        self._stopped = asyncio.Event()
        self.port = 0

    def stop(self) -> None:
        """Make `run` return."""
        self._stopped.set()

    async def run(self) -> None:
        """Wait to become the leader, then reconcile until stopped. Raises StartError if the port is in use."""
        endpoints = await self._serve()
        leading = asyncio.create_task(self._lead(), name="operator")
        stopped = asyncio.create_task(self._stopped.wait(), name="wait for the stop of the operator")
        try:
            await asyncio.wait((leading, stopped), return_when=asyncio.FIRST_COMPLETED)
            if leading.done():
                leading.result()
        finally:
            stopped.cancel()
            await cancel_tasks(leading)
            await self._remove_finalizers()
            await endpoints.cleanup()
            await self._client.close()

    async def _lead(self) -> None:
        replica = self._settings.replica
        if not replica.lease_namespace:
            _log.warning("LEADER_ELECTION_NAMESPACE is not set, so leader election is disabled; run only one replica")
            await self.controller.run()
            return
        seconds = replica.renew_deadline.seconds
        name = f"{LOCK}-{self._revision}" if self._revision else LOCK
        identity = replica.pod_name or f"istio-operator-{secrets.token_hex(4)}"
        durations = LeaseDurations(2 * seconds, seconds, seconds / 5)
        await LeaderElection(Lock(self._client, LEASE, replica.lease_namespace, name), identity, durations).run(
            self.controller.run
        )

    async def _remove_finalizers(self) -> None:
        """Remove the finalizers if the operator is being uninstalled, because nothing else would remove them."""
        replica, objects = self._settings.replica, self.controller.objects
        if not replica.pod_namespace:
            return
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(SHUTDOWN_SECONDS):
                try:
                    if await is_operator_removed(objects, replica.pod_namespace, replica.deployment):
                        for key in await remove_all_finalizers(objects, self._namespaces, self._revision):
                            _log.warning("%s: removed the finalizer; its installation stays in place", key)
                except KubeError as error:
                    _log.error("cannot remove finalizers: %s", error)

    # -- endpoints -----------------------------------------------------------------------------------------------------

    async def _serve(self) -> web.AppRunner:
        app = web.Application()
        app.router.add_get("/metrics", self._serve_metrics)
        app.router.add_get("/healthz", _serve_health)
        app.router.add_get("/readyz", _serve_health)
        runner = web.AppRunner(app, access_log=None)
        await runner.setup()
        host, _, port = self._settings.replica.address.rpartition(":")
        try:
            await web.TCPSite(runner, host or None, int(port)).start()
        except (OSError, ValueError) as error:
            await runner.cleanup()
            raise StartError(f"cannot listen on {self._settings.replica.address}: {error}") from error
        self.port = runner.addresses[0][1]
        return runner

    async def _serve_metrics(self, _: web.Request) -> web.Response:
        return web.Response(
            body=self._metrics.render(), headers={"Content-Type": "text/plain; version=0.0.4; charset=utf-8"}
        )


async def _serve_health(_: web.Request) -> web.Response:
    """Respond with success while the process runs. A replica that is not the leader is also ready."""
    return web.Response(text="ok")
