"""pilotctl check-inject evaluates the selectors of injection webhooks."""

from __future__ import annotations

import json
import pathlib
from collections.abc import AsyncIterator
from typing import Any

import pytest

from testing.apiserver.server import ApiServer
from tests.unit.cli.ctl.commands.test_install import Shell


def injector(name: str, revision: str, *expressions: dict[str, Any]) -> dict[str, Any]:
    """Return an injector. The expressions select namespaces. Pods with sidecar.istio.io/inject=false are excluded."""
    excluded = {"key": "sidecar.istio.io/inject", "operator": "NotIn", "values": ["false"]}
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "MutatingWebhookConfiguration",
        "metadata": {"name": name, "labels": {"istio.io/rev": revision}},
        "webhooks": [
            {
                "name": "namespace.sidecar-injector.istio.io",
                "clientConfig": {"url": "https://127.0.0.1:1"},
                "namespaceSelector": {"matchExpressions": list(expressions)},
                "objectSelector": {"matchExpressions": [excluded]},
                "admissionReviewVersions": ["v1"],
                "sideEffects": "None",
                "failurePolicy": "Ignore",
            }
        ],
    }


@pytest.fixture
async def shell(tmp_path: pathlib.Path) -> AsyncIterator[Shell]:
    server = ApiServer()
    await server.start()
    enabled = {"key": "istio-injection", "operator": "In", "values": ["enabled"]}
    server.put(injector("injector-a", "default", enabled))
    server.put(injector("injector-b", "canary", {"key": "istio.io/rev", "operator": "In", "values": ["canary"]}))
    for name, labels in (("shop", {"istio-injection": "enabled"}), ("bar", {})):
        server.put({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}})
    template = {"metadata": {"labels": {"app": "tea", "sidecar.istio.io/inject": "false"}}, "spec": {"containers": []}}
    server.put(
        {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {"name": "tea", "namespace": "shop"},
            "spec": {"selector": {"matchLabels": {"app": "tea"}}, "template": template},
        }
    )
    labels = {"app": "tea", "sidecar.istio.io/inject": "false"}
    server.put(
        {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "tea-1", "namespace": "shop", "labels": labels}}
    )
    for name, app in (("tea", "tea"), ("none", "none")):
        metadata = {"name": name, "namespace": "shop"}
        server.put({"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": {"selector": {"app": app}}})
    yield Shell(server, tmp_path)
    await server.stop()


async def verdicts(shell: Shell, *words: str) -> dict[str, tuple[bool, str]]:
    result = await shell("check-inject", *words, "-o", "json")
    assert result.exit_code == 0, result.output
    return {one["webhook"]: (one["injected"], one["reason"]) for one in json.loads(result.stdout)}


async def test_the_matching_label_is_the_reason(shell: Shell) -> None:
    assert await verdicts(shell, "-n", "shop", "-l", "app=tea") == {
        "injector-a": (True, "Namespace label istio-injection=enabled matches"),
        "injector-b": (
            False,
            "No matching labels of the namespace or the Pod (istio.io/rev=canary)",
        ),
    }


@pytest.mark.parametrize(
    "name", ["deployment/tea.shop", "deploy/tea.shop", "Deployments/tea.shop", "svc/tea.shop", "po/tea-1.shop"]
)
async def test_the_label_of_a_workload_prevents_injection(shell: Shell, name: str) -> None:
    prevented = (False, "Pod has sidecar.istio.io/inject=false label, preventing injection")
    assert (await verdicts(shell, name))["injector-a"] == prevented


async def test_the_table_has_the_columns_of_istioctl(shell: Shell) -> None:
    lines = (await shell("check-inject", "-n", "shop", "-l", "app=tea")).stdout.splitlines()
    assert lines[0].split() == ["WEBHOOK", "REVISION", "INJECTED", "REASON"]
    assert lines[1].split()[:3] == ["injector-a", "default", "✔"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("deployment/cups.shop",), "there is no deployment shop/cups"),
        (("-n", "none", "-l", "a=b"), "there is no namespace none"),
        ((), "specify either a workload or --labels"),
        (("secret/tea",), "the kind 'secret' is none of pod"),
        (("svc/none.shop",), "the service shop/none has no Pods; use deployment/NAME"),
        (("svc/cups.shop",), "there is no service shop/cups"),
    ],
)
async def test_mistakes_are_named(shell: Shell, words: tuple[str, ...], message: str) -> None:
    result = await shell("check-inject", *words)
    assert result.exit_code != 0
    assert message in result.stderr


async def test_the_default_namespace_is_that_of_the_context(shell: Shell, tmp_path: pathlib.Path) -> None:
    in_shop = Shell(shell.server, tmp_path, "shop")
    assert "injector-a" in await verdicts(in_shop, "deployment/tea")
    assert "there is no pod shop/tea" in (await in_shop("check-inject", "tea")).stderr


async def test_a_deactivated_webhook_is_named(shell: Shell) -> None:
    webhook = injector("injector-c", "default")
    never = {"matchLabels": {"istio.io/deactivated": "never-match"}}
    webhook["webhooks"][0] |= {"namespaceSelector": never, "objectSelector": never}
    shell.server.put(webhook)
    injected, reason = (await verdicts(shell, "-n", "shop", "-l", "app=tea"))["injector-c"]
    assert not injected
    assert reason.startswith("The webhook is deactivated and never matches")
