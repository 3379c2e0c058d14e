"""The ClusterTrustBundle with the roots of the mesh, which the kubelet mounts into pods of any namespace.

https://kubernetes.io/docs/reference/access-authn-authz/certificate-signing-requests/#cluster-trust-bundles
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import msgspec

from pilot.controllers.reconciler import Upkeep
from pilot.kube.client import ApiClient
from pilot.kube.errors import Conflict, NotFound
from pilot.kube.informer import Informer, WatchedCollection, WatchOptions
from pilot.kube.wire import ObjectChange
from pilot.lib.tasks import cancel_tasks

SIGNER = "istio.io/istiod-ca"
NAME = "istio.io:istiod-ca:root-cert"
PATH = "/apis/certificates.k8s.io/v1beta1/clustertrustbundles"


class TrustBundle:
    """Writes it while it runs. `wanted` returns the roots in PEM, "" while there are none."""

    def __init__(self, client: ApiClient, wanted: Callable[[], str], pace: WatchOptions, choose: random.Random) -> None:
        self._client, self._wanted, self._pace, self._choose = client, wanted, pace, choose
        self._there: Any = None
        self._upkeep: Upkeep[str] = Upkeep("trust bundle", self._settle, pace.backoff, choose)

    def changed(self) -> None:
        """Looks whether it is as it should be."""
        self._upkeep.look_at((NAME,))

    async def run(self) -> None:
        """Keeps it as it should be until it is cancelled."""
        self._there = None
        follower = Informer(
            self._client,
            WatchedCollection(PATH, fields=f"metadata.name={NAME}"),
            self._receive,
            self._pace,
            self._choose,
        )
        task = asyncio.create_task(follower.run(), name="follow the trust bundle")
        try:
            await follower.synced.wait()
            self.changed()
            await self._upkeep.run()
        finally:
            await cancel_tasks(task)

    async def _receive(self, changes: Sequence[ObjectChange]) -> None:
        for change in changes:
            self._there = None if change.raw is None else msgspec.json.decode(change.raw)
        self.changed()

    async def _settle(self, name: str) -> None:
        wanted, there = self._wanted(), self._there
        if not wanted or (there is not None and there["spec"].get("trustBundle") == wanted):
            return
        with contextlib.suppress(Conflict, NotFound):  # somebody has just changed or deleted it, which is told of
            if there is None:
                spec = {"signerName": SIGNER, "trustBundle": wanted}
                made = {
                    "apiVersion": "certificates.k8s.io/v1beta1",
                    "kind": "ClusterTrustBundle",
                    "metadata": {"name": name},
                    "spec": spec,
                }
                await self._client.call("POST", PATH, body=msgspec.json.encode(made))
            else:
                changed = {**there, "spec": {**there["spec"], "trustBundle": wanted}}
                await self._client.call("PUT", f"{PATH}/{name}", body=msgspec.json.encode(changed))


class Writer(Protocol):
    """What writes something while it runs, and is told when that may be something else."""

    def changed(self) -> None: ...
    async def run(self) -> None: ...


class Together:
    """Several writers that are run as one."""

    def __init__(self, *writers: Writer) -> None:
        self._writers = writers

    def changed(self) -> None:
        """Tells all of them."""
        for writer in self._writers:
            writer.changed()

    async def run(self) -> None:
        """Runs all of them until it is cancelled."""
        async with asyncio.TaskGroup() as group:
            for writer in self._writers:
                group.create_task(writer.run())
