"""The roots that API servers trust the control plane's webhooks by, in the webhook configurations of its revision and of its tags.

Whoever overwrites them is corrected. A validating webhook may turn from Ignore to Fail once it has been seen to deny.
"""

from __future__ import annotations

import asyncio
import base64
import random
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import msgspec

from pilot.controllers.reconciler import Upkeep
from pilot.kube.client import ApiClient
from pilot.kube.errors import ApiError, KubeError, NotFound
from pilot.kube.informer import Informer, WatchedCollection, WatchOptions
from pilot.kube.wire import ObjectChange
from pilot.lib.kubernetes_metrics import KubernetesMetrics
from pilot.lib.tasks import cancel_tasks

JSON_PATCH = "application/json-patch+json"
_BASE = "/apis/admissionregistration.k8s.io/v1"
INJECTOR = "sidecar-injector.istio.io"
GATEWAYS = "/apis/networking.istio.io/v1/namespaces/%s/gateways"


class WebhookKind(NamedTuple):
    """Configurations whose webhooks' names end in `suffix`. `strict`: they are to fail where they cannot be asked, once they work."""

    plural: str
    suffix: str = ""
    strict: bool = False


MUTATING = WebhookKind("mutatingwebhookconfigurations", INJECTOR)
VALIDATING = WebhookKind("validatingwebhookconfigurations", strict=True)


class NotDenied(KubeError):
    """The validating webhook lets through what it has to deny."""


class _ClientConfig(msgspec.Struct, rename="camel"):
    ca_bundle: str = ""


class _Webhook(msgspec.Struct, rename="camel"):
    name: str = ""
    client_config: _ClientConfig = msgspec.field(default_factory=_ClientConfig)
    failure_policy: str = ""


class _Configuration(msgspec.Struct):
    webhooks: tuple[_Webhook, ...] = ()


class CaBundles:
    """Writes them while it runs. `bundle` returns the roots in PEM, "" while there are none; `changed` says that they are others now."""

    def __init__(
        self,
        client: ApiClient,
        revision: str,
        namespace: str,
        bundle: Callable[[], str],
        kinds: Sequence[WebhookKind],
        pace: WatchOptions,
        choose: random.Random,
        counts: KubernetesMetrics,
    ) -> None:
        self._counts = counts
        self._client, self._revision, self._namespace, self._bundle = client, revision or "default", namespace, bundle
        self._there: dict[tuple[WebhookKind, str], _Configuration] = {}
        self._upkeep: Upkeep[tuple[WebhookKind, str]] = Upkeep("webhooks of", self._settle, pace.backoff, choose)
        labels = f"istio.io/rev={self._revision}"
        self._followers = [
            Informer(client, WatchedCollection(f"{_BASE}/{kind.plural}", labels), self._receiver(kind), pace, choose)
            for kind in kinds
        ]

    def changed(self) -> None:
        """Looks at every configuration again."""
        self._upkeep.look_at(self._there)

    async def run(self) -> None:
        """Keeps the configurations as they should be until it is cancelled."""
        tasks = [
            asyncio.create_task(follower.run(), name="follow webhook configurations") for follower in self._followers
        ]
        try:
            await self._upkeep.run()
        finally:
            await cancel_tasks(*tasks)

    def _receiver(self, kind: WebhookKind) -> Callable[[Sequence[ObjectChange]], Any]:
        async def receive(changes: Sequence[ObjectChange]) -> None:
            for change in changes:
                key = kind, change.name.name
                if change.raw is None:
                    self._there.pop(key, None)
                else:
                    self._there[key] = msgspec.json.decode(change.raw, type=_Configuration)
                    self._upkeep.look_at((key,))

        return receive

    async def _settle(self, key: tuple[WebhookKind, str]) -> None:
        """Writes what is not as it should be in a configuration. KubeError where a webhook that is to be strict does not work yet."""
        kind = key[0]
        bundle = base64.b64encode(self._bundle().encode()).decode()
        if not bundle or key not in self._there:
            return
        await self._patch(key, list(self._bundles(key, bundle)))
        there = self._there.get(key)  # it may have gone meanwhile
        lax = (
            [index for index, webhook in enumerate(there.webhooks) if webhook.failure_policy == "Ignore"]
            if there is not None
            else []
        )
        if kind.strict and lax:
            await self._see_it_deny()
            await self._patch(
                key, [{"op": "replace", "path": f"/webhooks/{index}/failurePolicy", "value": "Fail"} for index in lax]
            )

    def _bundles(self, key: tuple[WebhookKind, str], bundle: str) -> Iterator[dict[str, Any]]:
        for index, webhook in enumerate(self._there[key].webhooks):
            if webhook.name.endswith(key[0].suffix) and webhook.client_config.ca_bundle != bundle:
                yield {
                    "op": "test",
                    "path": f"/webhooks/{index}/name",
                    "value": webhook.name,
                }  # its place may have changed
                yield {"op": "add", "path": f"/webhooks/{index}/clientConfig/caBundle", "value": bundle}

    async def _patch(self, key: tuple[WebhookKind, str], operations: list[dict[str, Any]]) -> None:
        if not operations:
            return
        kind, name = key
        if not kind.strict:
            self._counts.webhook_patched(kind.suffix)
        try:
            body = msgspec.json.encode(operations)
            answer = await self._client.call(
                "PATCH", f"{_BASE}/{kind.plural}/{name}", body=body, content_type=JSON_PATCH
            )
        except NotFound:
            self._there.pop(key, None)
            self._count_failure(key, "webhook_config_not_found", "NotFound")
            return
        except KubeError as error:
            self._count_failure(key, "webhook_update_failure", getattr(error, "reason", "") or type(error).__name__)
            raise
        self._there[key] = msgspec.json.decode(answer, type=_Configuration)
        if kind.strict:
            self._counts.validation_updated()

    def _count_failure(self, key: tuple[WebhookKind, str], cause: str, reason: str) -> None:
        """Counts what could not be written: `cause` in istiod's words, `reason` in the API server's. It is tried again unless it is gone."""
        kind, name = key
        if kind.strict:
            self._counts.validation_update_failed(reason)
            return
        self._counts.webhook_failed(name, cause)
        if cause != "webhook_config_not_found":
            self._counts.webhook_retried(name)

    async def _see_it_deny(self) -> None:
        """Returns when the webhook denies a Gateway that is wrong. NotDenied where it does not; a server that has no Gateways has nothing to deny."""
        labels, annotations = {"istio.io/rev": self._revision}, {"internal.istio.io/webhook-always-reject": "true"}
        metadata = {
            "name": "invalid-gateway",
            "namespace": self._namespace,
            "labels": labels,
            "annotations": annotations,
        }
        body = msgspec.json.encode(
            {"apiVersion": "networking.istio.io/v1", "kind": "Gateway", "metadata": metadata, "spec": {}}
        )
        try:
            await self._client.call("POST", GATEWAYS % self._namespace, {"dryRun": "All"}, body)
        except NotFound:
            return
        except ApiError as error:
            if "denied the request" in error.message:
                return
            raise
        raise NotDenied("the validating webhook does not deny yet what is wrong")
