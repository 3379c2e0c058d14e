"""The operator as a process: its client, its election, its pages, and its end."""

from __future__ import annotations

import asyncio
import contextlib
import random
import secrets
import signal
from collections.abc import Mapping, Sequence

from aiohttp import web

from pilot.install.installer import WaitOptions
from pilot.kube.access import Credentials, InCluster, KubeconfigFile
from pilot.kube.client import ApiClient, RequestTimeouts
from pilot.kube.errors import KubeError
from pilot.kube.informer import WatchOptions
from pilot.kube.leader_election import LeaderElection, LeaseDurations
from pilot.kube.leader_lock import LEASE, Lock
from pilot.lib.log import scope
from pilot.lib.start_error import StartError
from pilot.lib.tasks import cancel_tasks
from pilot.operator.finalizer import is_operator_removed, remove_all_finalizers
from pilot.operator.istio_operator_controller import IstioOperatorController
from pilot.operator.metrics import OperatorMetrics
from pilot.operator.operator_settings import WATCHED, OperatorSettings

LOCK = "istio-operator-lock"
SIGNALS = (signal.SIGTERM, signal.SIGINT)
END_SECONDS = 20.0
_log = scope("operator")


def run(settings: OperatorSettings, environ: Mapping[str, str]) -> None:
    """Runs the operator until a signal. StartError where it cannot."""
    if WATCHED not in environ:
        raise StartError(f"{WATCHED} must be set: namespaces between commas, or empty for all")
    asyncio.run(_run(settings))


async def _run(settings: OperatorSettings) -> None:
    operator = Operator(settings, _credentials(settings))
    for number in SIGNALS:
        asyncio.get_running_loop().add_signal_handler(number, operator.end)
    await operator.run()


def _credentials(settings: OperatorSettings) -> Credentials:
    return KubeconfigFile(settings.watch.kubeconfig) if settings.watch.kubeconfig else InCluster()


def parse_namespaces(text: str) -> Sequence[str] | None:
    """Returns the namespaces of a list with commas, None for all."""
    return list(dict.fromkeys(part.strip() for part in text.split(",") if part.strip())) or None


class Operator:
    """One replica of the operator. `end` has `run` return; `port` is that of its pages while it runs."""

    def __init__(
        self,
        settings: OperatorSettings,
        credentials: Credentials,
        pace: WatchOptions = WatchOptions(),
        look: float = 2.0,
        patience: RequestTimeouts = RequestTimeouts(),
    ) -> None:
        self._settings, self._metrics = settings, OperatorMetrics()
        self._namespaces, self._revision = parse_namespaces(settings.watch.namespaces), settings.watch.revision
        self._client = ApiClient(credentials, timeouts=patience)
        waits = WaitOptions(settings.watch.timeout.seconds, look)
        self.controller = IstioOperatorController(
            self._client, self._namespaces, self._revision, waits, pace, random.Random(), self._metrics
        )
        self._ended = asyncio.Event()
        self.port = 0

    def end(self) -> None:
        """Has it end."""
        self._ended.set()

    async def run(self) -> None:
        """Works, or waits until it is this replica's turn, until it is to end. StartError where its port is taken."""
        pages = await self._serve()
        working = asyncio.create_task(self._work(), name="operator")
        ended = asyncio.create_task(self._ended.wait(), name="wait for the end")
        try:
            await asyncio.wait((working, ended), return_when=asyncio.FIRST_COMPLETED)
            if working.done():
                working.result()
        finally:
            ended.cancel()
            await cancel_tasks(working)
            await self._release()
            await pages.cleanup()
            await self._client.close()

    async def _work(self) -> None:
        replica = self._settings.replica
        if not replica.lease_namespace:
            _log.warning("LEADER_ELECTION_NAMESPACE is not set: every replica works, so there must be only one")
            await self.controller.run()
            return
        seconds = replica.renew_deadline.seconds
        name = f"{LOCK}-{self._revision}" if self._revision else LOCK
        identity = replica.pod_name or f"istio-operator-{secrets.token_hex(4)}"
        terms = LeaseDurations(2 * seconds, seconds, seconds / 5)
        await LeaderElection(Lock(self._client, LEASE, replica.lease_namespace, name), identity, terms).run(
            self.controller.run
        )

    async def _release(self) -> None:
        """Takes the finalizers away where there will be no operator any more that could: nothing else would ever do so."""
        replica, objects = self._settings.replica, self.controller.objects
        if not replica.pod_namespace:
            return
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(END_SECONDS):
                try:
                    if await is_operator_removed(objects, replica.pod_namespace, replica.deployment):
                        for key in await remove_all_finalizers(objects, self._namespaces, self._revision):
                            _log.warning("%s: the operator goes, what was installed stays", key)
                except KubeError as error:
                    _log.error("finalizers cannot be removed: %s", error)

    # -- pages ---------------------------------------------------------------------------------------------------------

    async def _serve(self) -> web.AppRunner:
        app = web.Application()
        app.router.add_get("/metrics", self._show_metrics)
        app.router.add_get("/healthz", _show_health)
        app.router.add_get("/readyz", _show_health)
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

    async def _show_metrics(self, _: web.Request) -> web.Response:
        return web.Response(
            body=self._metrics.text(), headers={"Content-Type": "text/plain; version=0.0.4; charset=utf-8"}
        )


async def _show_health(_: web.Request) -> web.Response:
    """Answers while the process runs: a replica that waits for its turn is ready too."""
    return web.Response(text="ok")
