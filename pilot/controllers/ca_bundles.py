"""Writes the CA bundle into the webhook configurations of this revision and its tags, and reverts other clients'
changes.

API servers verify the control plane's webhooks with the bundle. The failure policy of a validating webhook changes from
Ignore to Fail once the webhook has been observed to reject an invalid object.
"""

from __future__ import annotations

import asyncio
import base64
import random
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import msgspec

from pilot.controllers.reconciler import Reconciler
from pilot.kube.api_client import ApiClient
from pilot.kube.api_errors import ApiError, KubeError, NotFound
from pilot.kube.informer import Informer, WatchedCollection, WatchOptions
from pilot.kube.list_watch import ObjectChange
from pilot.lib.metrics.kubernetes_metrics import KubernetesMetrics
from pilot.lib.tasks import cancel_tasks

JSON_PATCH = "application/json-patch+json"
_BASE = "/apis/admissionregistration.k8s.io/v1"
INJECTOR = "sidecar-injector.istio.io"
GATEWAYS = "/apis/networking.istio.io/v1/namespaces/%s/gateways"


class WebhookKind(NamedTuple):
    """A kind of webhook configuration. Only webhooks whose names end in `suffix` are changed.

    With `fail_closed`, the failure policy of the webhooks becomes Fail once they work.
    """

    plural: str
    suffix: str = ""
    fail_closed: bool = False


MUTATING = WebhookKind("mutatingwebhookconfigurations", INJECTOR)
VALIDATING = WebhookKind("validatingwebhookconfigurations", fail_closed=True)


class _ConfigurationKey(NamedTuple):
    kind: WebhookKind
    name: str

    def __str__(self) -> str:
        return f"{self.kind.plural}/{self.name}"


class WebhookNotEnforcing(KubeError):
    """The validating webhook admits an object that it must reject."""


class _ClientConfig(msgspec.Struct, rename="camel"):
    ca_bundle: str = ""


class _Webhook(msgspec.Struct, rename="camel"):
    name: str = ""
    client_config: _ClientConfig = msgspec.field(default_factory=_ClientConfig)
    failure_policy: str = ""


class _Configuration(msgspec.Struct):
    webhooks: tuple[_Webhook, ...] = ()


class CaBundleController:
    """Writes CA bundles. `roots_pem` returns the root certificates in PEM, or "" if there are none yet."""

    def __init__(
        self,
        client: ApiClient,
        revision: str,
        namespace: str,
        roots_pem: Callable[[], str],
        kinds: Sequence[WebhookKind],
        options: WatchOptions,
        rng: random.Random,
        metrics: KubernetesMetrics,
    ) -> None:
        self._metrics = metrics
        self._client, self._revision, self._namespace = client, revision or "default", namespace
        self._roots_pem = roots_pem
        self._existing: dict[_ConfigurationKey, _Configuration] = {}
        self._reconciler: Reconciler[_ConfigurationKey] = Reconciler(
            "webhooks in", self._reconcile, options.backoff, rng
        )
        labels = f"istio.io/rev={self._revision}"
        self._informers = [
            Informer(client, WatchedCollection(f"{_BASE}/{kind.plural}", labels), self._receiver(kind), options, rng)
            for kind in kinds
        ]

    def resync(self) -> None:
        """Enqueue all configurations."""
        self._reconciler.enqueue(self._existing)

    async def run(self) -> None:
        """Keep the configurations up to date until cancelled."""
        tasks = [
            asyncio.create_task(informer.run(), name="watch webhook configurations") for informer in self._informers
        ]
        try:
            await self._reconciler.run()
        finally:
            await cancel_tasks(*tasks)

    def _receiver(self, kind: WebhookKind) -> Callable[[Sequence[ObjectChange]], Any]:
        async def receive(changes: Sequence[ObjectChange]) -> None:
            for change in changes:
                key = _ConfigurationKey(kind, change.name.name)
                if change.raw is None:
                    self._existing.pop(key, None)
                else:
                    self._existing[key] = msgspec.json.decode(change.raw, type=_Configuration)
                    self._reconciler.enqueue((key,))

        return receive

    async def _reconcile(self, key: _ConfigurationKey) -> None:
        """Correct a configuration. Raise KubeError if a webhook must fail closed but does not work yet."""
        kind = key.kind
        bundle = base64.b64encode(self._roots_pem().encode()).decode()
        if not bundle or key not in self._existing:
            return
        await self._patch(key, list(self._bundle_operations(key, bundle)))
        existing = self._existing.get(key)  # it may have been deleted meanwhile
        failing_open = (
            [index for index, webhook in enumerate(existing.webhooks) if webhook.failure_policy == "Ignore"]
            if existing is not None
            else []
        )
        if kind.fail_closed and failing_open:
            await self._check_enforcement()
            operations = [
                {"op": "replace", "path": f"/webhooks/{index}/failurePolicy", "value": "Fail"} for index in failing_open
            ]
            await self._patch(key, operations)

    def _bundle_operations(self, key: _ConfigurationKey, bundle: str) -> Iterator[dict[str, Any]]:
        for index, webhook in enumerate(self._existing[key].webhooks):
            if webhook.name.endswith(key.kind.suffix) and webhook.client_config.ca_bundle != bundle:
                # The index may have changed meanwhile.
                yield {"op": "test", "path": f"/webhooks/{index}/name", "value": webhook.name}
                yield {"op": "add", "path": f"/webhooks/{index}/clientConfig/caBundle", "value": bundle}

    async def _patch(self, key: _ConfigurationKey, operations: list[dict[str, Any]]) -> None:
        if not operations:
            return
        kind, name = key
        if not kind.fail_closed:
            self._metrics.webhook_patched(kind.suffix)
        try:
            body = msgspec.json.encode(operations)
            answer = await self._client.call(
                "PATCH", f"{_BASE}/{kind.plural}/{name}", body=body, content_type=JSON_PATCH
            )
        except NotFound:
            self._existing.pop(key, None)
            self._count_failure(key, "webhook_config_not_found", "NotFound")
            return
        except KubeError as error:
            self._count_failure(key, "webhook_update_failure", getattr(error, "reason", "") or type(error).__name__)
            raise
        self._existing[key] = msgspec.json.decode(answer, type=_Configuration)
        if kind.fail_closed:
            self._metrics.validation_updated()

    def _count_failure(self, key: _ConfigurationKey, cause: str, reason: str) -> None:
        """Count a failed write. The write is retried unless the object was deleted.

        `cause` is the label value in istiod's metric, and `reason` is the API server's reason.
        """
        kind, name = key
        if kind.fail_closed:
            self._metrics.validation_update_failed(reason)
            return
        self._metrics.webhook_failed(name, cause)
        if cause != "webhook_config_not_found":
            self._metrics.webhook_retried(name)

    async def _check_enforcement(self) -> None:
        """Check that the webhook rejects an invalid Gateway. Skip the check if the API server has no Gateway kind.

        Raise WebhookNotEnforcing if the webhook admits the Gateway.
        """
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
        raise WebhookNotEnforcing("the validating webhook does not reject invalid objects yet")
