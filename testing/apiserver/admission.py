"""Admission webhooks, called for real: over HTTPS, with the CA bundle of their configuration.

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
from testing.apiserver.request_info import Asked
from testing.apiserver.resource import ADMISSION, NAMESPACES
from testing.apiserver.selectors import matches
from testing.apiserver.status_error import Refusal
from testing.apiserver.store import Plain, Store

OPERATIONS = {"create": "CREATE", "update": "UPDATE", "patch": "UPDATE", "delete": "DELETE"}


class Webhooks:
    """Asks the webhooks that the store has configurations of. `services` says where a Service, by namespace and name, listens: host and port."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.services: dict[tuple[str, str], tuple[str, int]] = {}
        self.calls: list[tuple[str, Plain]] = []

    async def mutate(self, asked: Asked, old: Plain | None, new: Plain | None) -> Plain | None:
        """Return the object as the mutating webhooks want it. Refusal where one denies it, or cannot be asked and has to be."""
        for webhook in self._concerned("mutatingwebhookconfigurations", asked, new or old or {}):
            response = await self._ask(webhook, asked, old, new)
            if new is not None and response.get("patch"):
                new = json_patch(copy.deepcopy(new), json.loads(base64.b64decode(response["patch"])))
        return new

    async def validate(self, asked: Asked, old: Plain | None, new: Plain | None) -> Plain | None:
        """Return the object as it is. Refusal where a validating webhook denies it, or cannot be asked and has to be."""
        for webhook in self._concerned("validatingwebhookconfigurations", asked, new or old or {}):
            await self._ask(webhook, asked, old, new)
        return new

    def _concerned(self, plural: str, asked: Asked, plain: Plain) -> Iterator[Mapping[str, Any]]:
        if asked.resource.group == ADMISSION:
            return
        for _, stored in sorted(self._store.collection((ADMISSION, plural)).objects.items()):
            for webhook in stored.plain.get("webhooks") or ():
                if self._is_concerned(webhook, asked, plain):
                    yield webhook

    def _is_concerned(self, webhook: Mapping[str, Any], asked: Asked, plain: Plain) -> bool:
        namespace = self._store.get(NAMESPACES, ("", asked.namespace))
        labels = {
            "kubernetes.io/metadata.name": asked.namespace,
            **((namespace.plain["metadata"].get("labels") or {}) if namespace else {}),
        }
        ours = plain.get("metadata", {}).get("labels") or {}
        return (
            any(_rule_matches(rule, asked) for rule in webhook.get("rules") or ())
            and (not asked.namespace or matches(webhook.get("namespaceSelector"), labels))
            and matches(webhook.get("objectSelector"), ours)
        )

    async def _ask(
        self, webhook: Mapping[str, Any], asked: Asked, old: Plain | None, new: Plain | None
    ) -> Mapping[str, Any]:
        resource = asked.resource
        request = {
            "uid": f"review-{len(self.calls)}",
            "operation": OPERATIONS[asked.verb],
            "name": asked.name,
            "namespace": asked.namespace,
            "kind": {"group": resource.group, "version": resource.versions[0], "kind": resource.kind},
            "resource": {"group": resource.group, "version": resource.versions[0], "resource": resource.plural},
            "object": new,
            "oldObject": old,
            "dryRun": asked.dry_run,
            "userInfo": {"username": "admin"},
        }
        self.calls.append((webhook["name"], request))
        try:
            response = await self._call(
                webhook, {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}
            )
        except (aiohttp.ClientError, OSError, TimeoutError, ValueError, KeyError) as fault:
            if webhook.get("failurePolicy") == "Ignore":
                return {}
            raise Refusal(
                500, f'Internal error occurred: failed calling webhook "{webhook["name"]}": {fault}'
            ) from fault
        if not response.get("allowed"):
            status = response.get("status") or {}
            message = f'admission webhook "{webhook["name"]}" denied the request: {status.get("message", "without explanation")}'
            raise Refusal(status.get("code") or 403, message)
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
            session.post(url, json=review, ssl=context, server_hostname=name) as answer,
        ):
            found: Mapping[str, Any] = (await answer.json(content_type=None))["response"]
            return found


def _rule_matches(rule: Mapping[str, Any], asked: Asked) -> bool:
    resource = asked.resource.plural + (f"/{asked.subresource}" if asked.subresource else "")
    return (
        any(operation in ("*", OPERATIONS.get(asked.verb)) for operation in rule.get("operations", ()))
        and any(group in ("*", asked.resource.group) for group in rule.get("apiGroups", ()))
        and any(version == "*" or version in asked.resource.versions for version in rule.get("apiVersions", ()))
        and any(
            name in ("*/*", resource) or (name == "*" and not asked.subresource) for name in rule.get("resources", ())
        )
        and rule.get("scope", "*") in ("*", "Namespaced" if asked.resource.namespaced else "Cluster")
    )
