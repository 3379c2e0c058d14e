"""Admission webhooks, called over HTTPS with the CA bundle of their configuration.

https://kubernetes.io/docs/reference/access-authn-authz/extensible-admission-controllers/
"""

from __future__ import annotations

import base64
import copy
import json
import ssl
from collections.abc import Iterator, Mapping
from typing import Any

import aiohttp

from testing.apiserver.patches import json_patch
from testing.apiserver.request_info import RequestInfo
from testing.apiserver.resource import ADMISSION, NAMESPACES
from testing.apiserver.selectors import matches
from testing.apiserver.status_error import StatusError
from testing.apiserver.store import Plain, Store

OPERATIONS = {"create": "CREATE", "update": "UPDATE", "patch": "UPDATE", "delete": "DELETE"}


class Webhooks:
    """Calls the webhooks that the store has configurations of.

    `services` maps a Service's namespace and name to the host and port where it listens.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self.services: dict[tuple[str, str], tuple[str, int]] = {}
        self.calls: list[tuple[str, Plain]] = []

    async def mutate(self, info: RequestInfo, old: Plain | None, new: Plain | None) -> Plain | None:
        """Return the object as the mutating webhooks change it.

        Raise StatusError if one denies it or a mandatory one fails.
        """
        for webhook in self._matching_webhooks("mutatingwebhookconfigurations", info, new or old or {}):
            response = await self._review(webhook, info, old, new)
            if new is not None and response.get("patch"):
                new = json_patch(copy.deepcopy(new), json.loads(base64.b64decode(response["patch"])))
        return new

    async def validate(self, info: RequestInfo, old: Plain | None, new: Plain | None) -> Plain | None:
        """Return the object unchanged. Raise StatusError if a validating webhook denies it or a mandatory one fails."""
        for webhook in self._matching_webhooks("validatingwebhookconfigurations", info, new or old or {}):
            await self._review(webhook, info, old, new)
        return new

    def _matching_webhooks(self, plural: str, info: RequestInfo, plain: Plain) -> Iterator[Mapping[str, Any]]:
        if info.resource.group == ADMISSION:
            return
        for stored in self._store.collection((ADMISSION, plural)).in_order():
            for webhook in stored.plain.get("webhooks") or ():
                if self._matches(webhook, info, plain):
                    yield webhook

    def _matches(self, webhook: Mapping[str, Any], info: RequestInfo, plain: Plain) -> bool:
        namespace = self._store.get(NAMESPACES, ("", info.namespace))
        labels = {
            "kubernetes.io/metadata.name": info.namespace,
            **((namespace.plain["metadata"].get("labels") or {}) if namespace else {}),
        }
        object_labels = plain.get("metadata", {}).get("labels") or {}
        return (
            any(_rule_matches(rule, info) for rule in webhook.get("rules") or ())
            and (not info.namespace or matches(webhook.get("namespaceSelector"), labels))
            and matches(webhook.get("objectSelector"), object_labels)
        )

    async def _review(
        self, webhook: Mapping[str, Any], info: RequestInfo, old: Plain | None, new: Plain | None
    ) -> Mapping[str, Any]:
        resource = info.resource
        request = {
            "uid": f"review-{len(self.calls)}",
            "operation": OPERATIONS[info.verb],
            "name": info.name,
            "namespace": info.namespace,
            "kind": {"group": resource.group, "version": resource.versions[0], "kind": resource.kind},
            "resource": {"group": resource.group, "version": resource.versions[0], "resource": resource.plural},
            "object": new,
            "oldObject": old,
            "dryRun": info.dry_run,
            "userInfo": {"username": "admin"},
        }
        self.calls.append((webhook["name"], request))
        try:
            response = await self._call(
                webhook, {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}
            )
        except (aiohttp.ClientError, OSError, TimeoutError, ValueError, KeyError) as error:
            if webhook.get("failurePolicy") == "Ignore":
                return {}
            raise StatusError(
                500, f'Internal error occurred: failed calling webhook "{webhook["name"]}": {error}'
            ) from error
        if not response.get("allowed"):
            status = response.get("status") or {}
            message = f'admission webhook "{webhook["name"]}" denied the request: {status.get("message", "without explanation")}'
            raise StatusError(status.get("code") or 403, message)
        return response

    async def _call(self, webhook: Mapping[str, Any], review: Plain) -> Mapping[str, Any]:
        config = webhook["clientConfig"]
        url, name = config.get("url"), None
        if not url:
            service = config["service"]
            host, port = self.services[service["namespace"], service["name"]]
            url, name = (
                f"https://{host}:{port}{service.get('path', '')}",
                f"{service['name']}.{service['namespace']}.svc",
            )
        roots = base64.b64decode(config.get("caBundle", "")).decode()
        context = ssl.create_default_context(cadata=roots or None)
        timeout = aiohttp.ClientTimeout(total=webhook.get("timeoutSeconds", 10))
        async with (
            aiohttp.ClientSession(timeout=timeout) as session,
            session.post(url, json=review, ssl=context, server_hostname=name) as response,
        ):
            content: Mapping[str, Any] = (await response.json(content_type=None))["response"]
            return content


def _rule_matches(rule: Mapping[str, Any], info: RequestInfo) -> bool:
    resource = info.resource.plural + (f"/{info.subresource}" if info.subresource else "")
    return (
        any(operation in ("*", OPERATIONS.get(info.verb)) for operation in rule.get("operations", ()))
        and any(group in ("*", info.resource.group) for group in rule.get("apiGroups", ()))
        and any(version == "*" or version in info.resource.versions for version in rule.get("apiVersions", ()))
        and any(
            name in ("*/*", resource) or (name == "*" and not info.subresource) for name in rule.get("resources", ())
        )
        and rule.get("scope", "*") in ("*", "Namespaced" if info.resource.namespaced else "Cluster")
    )
