"""Keeps the ClusterTrustBundle with the mesh's root certificates up to date. The kubelet mounts it into pods.

https://kubernetes.io/docs/reference/access-authn-authz/certificate-signing-requests/#cluster-trust-bundles
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from pilot.controllers.reconciler import Reconciler
from pilot.kube.api_client import ApiClient
from pilot.kube.api_errors import Conflict, NotFound
from pilot.kube.informer import Informer, WatchedCollection, WatchOptions
from pilot.kube.list_watch import ObjectChange
from pilot.lib.tasks import cancel_tasks

SIGNER = "istio.io/istiod-ca"
NAME = "istio.io:istiod-ca:root-cert"
PATH = "/apis/certificates.k8s.io/v1beta1/clustertrustbundles"


class TrustBundleController:
    """Writes the ClusterTrustBundle. `roots_pem` returns the root certificates in PEM, or "" if there are none yet."""

    def __init__(
        self, client: ApiClient, roots_pem: Callable[[], str], options: WatchOptions, rng: random.Random
    ) -> None:
        self._client, self._roots_pem, self._options, self._rng = client, roots_pem, options, rng
        self._existing: Any = None
        self._reconciler: Reconciler[str] = Reconciler("trust bundle", self._reconcile, options.backoff, rng)

    def resync(self) -> None:
        """Enqueue the bundle."""
        self._reconciler.enqueue((NAME,))

    async def run(self) -> None:
        """Keep the bundle up to date until cancelled."""
        self._existing = None
        informer = Informer(
            self._client,
            WatchedCollection(PATH, fields=f"metadata.name={NAME}"),
            self._receive,
            self._options,
            self._rng,
        )
        task = asyncio.create_task(informer.run(), name="watch the trust bundle")
        try:
            await informer.synced.wait()
            self.resync()
            await self._reconciler.run()
        finally:
            await cancel_tasks(task)

    async def _receive(self, changes: Sequence[ObjectChange]) -> None:
        for change in changes:
            self._existing = None if change.raw is None else msgspec.json.decode(change.raw)
        self.resync()

    async def _reconcile(self, name: str) -> None:
        roots, existing = self._roots_pem(), self._existing
        if not roots or (existing is not None and existing["spec"].get("trustBundle") == roots):
            return
        with contextlib.suppress(Conflict, NotFound):  # changed or deleted concurrently; the informer will report it
            if existing is None:
                plain = {
                    "apiVersion": "certificates.k8s.io/v1beta1",
                    "kind": "ClusterTrustBundle",
                    "metadata": {"name": name},
                    "spec": {"signerName": SIGNER, "trustBundle": roots},
                }
                await self._client.call("POST", PATH, body=msgspec.json.encode(plain))
            else:
                plain = {**existing, "spec": {**existing["spec"], "trustBundle": roots}}
                await self._client.call("PUT", f"{PATH}/{name}", body=msgspec.json.encode(plain))
