"""Exact output of pilotctl tag, with three revisions and a foreign injector."""

from __future__ import annotations

import json
import pathlib
import re
from collections.abc import AsyncIterator
from typing import Any

import pytest
import yaml

from deploy.generated import chart_version
from pilot.lib.build_info import build_info
from testing.apiserver.server import ApiServer
from testing.kube.installations import state_of
from tests.unit.cli.ctl.commands.test_install import Shell

PREFIX = "MutatingWebhookConfiguration/"
DUPLICATE_WARNING = (
    "! {} and {} (revision {}) would both inject pods without injection labels in namespaces labelled {}\n"
)
NAMESPACES_WARNING = "! these namespaces use the tag and will no longer be injected: {}\n"


def injector(name: str, revision: str, selected: str = "") -> dict[str, Any]:
    webhook = {
        "name": "rev.namespace.sidecar-injector.istio.io",
        "clientConfig": {
            "service": {
                "name": f"istiod-{revision}",
                "namespace": "control",
                "path": "/inject/cluster/west",
                "port": 443,
            }
        },
        "namespaceSelector": {"matchLabels": {"istio.io/rev": selected or revision}},
        "objectSelector": {},
        "admissionReviewVersions": ["v1"],
        "sideEffects": "None",
        "rules": [{"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"]}],
    }
    metadata = {"name": name, "labels": {"istio.io/rev": revision}}
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "MutatingWebhookConfiguration",
        "metadata": metadata,
        "webhooks": [webhook],
    }


@pytest.fixture
async def shell(tmp_path: pathlib.Path) -> AsyncIterator[Shell]:
    server = ApiServer()
    await server.start()
    for revision in ("default", "r1", "r2"):
        server.put(injector(f"injector-{revision}", revision))
    namespaces = {
        "tea": {"istio.io/rev": "prod"},
        "milk": {"istio.io/rev": "prod"},
        "sugar": {"istio-injection": "enabled"},
    }
    for name, labels in namespaces.items():
        server.put({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}})
    yield Shell(server, tmp_path)
    await server.stop()


async def run_tag(shell: Shell, *words: str, stdin: str | None = None) -> tuple[int, str, str]:
    """Return the exit status, standard output and standard error of `pilotctl tag`."""
    result = await shell("tag", *words, stdin=stdin)
    return result.exit_code, result.stdout, result.stderr


async def test_tag_is_set_moved_listed_and_removed(shell: Shell) -> None:
    """Release note revision-tags-as-svc, and the other commands of tags."""
    hint = "To use it in a namespace: kubectl label namespace NAMESPACE istio.io/rev=prod istio-injection-\n"
    assert await run_tag(shell, "set", "prod", "-r", "r1") == (0, f"✔ The tag prod points to revision r1.\n{hint}", "")
    error = "Error: tag prod already points to revision r1; use --overwrite to change it\n"
    assert await run_tag(shell, "set", "prod", "-r", "r2") == (1, "", error)
    assert await run_tag(shell, "set", "prod", "-r", "r2", "--overwrite") == (
        0,
        f"✔ The tag prod points to revision r2.\n{hint}",
        "",
    )
    service = state_of(shell.server)["Service/istio-system/istiod-revision-tag-prod"]
    assert {name: service["metadata"]["labels"][name] for name in ("istio.io/rev", "istio.io/tag")} == {
        "istio.io/rev": "r2",
        "istio.io/tag": "prod",
    }
    assert (
        service["spec"]["selector"]["istio.io/rev"],
        15012 in [port["port"] for port in service["spec"]["ports"]],
    ) == (
        "r2",
        True,
    )
    assert await run_tag(shell, "set", "canary", "-r", "r1", "--webhook-name", "mine") == (
        0,
        (
            "✔ The tag canary points to revision r1.\n"
            "To use it in a namespace: kubectl label namespace NAMESPACE istio.io/rev=canary istio-injection-\n"
        ),
        "",
    )
    assert await run_tag(shell, "list") == (
        0,
        "TAG      REVISION   NAMESPACES\ncanary   r1\nprod     r2         milk, tea\n",
        "",
    )
    tags = [
        {"tag": "canary", "revision": "r1", "namespaces": []},
        {"tag": "prod", "revision": "r2", "namespaces": ["milk", "tea"]},
    ]
    assert json.loads((await run_tag(shell, "list", "-o", "json"))[1]) == tags
    injectors = {name.removeprefix(PREFIX) for name in state_of(shell.server) if name.startswith(PREFIX)}
    assert injectors == {"injector-default", "injector-r1", "injector-r2", "istio-revision-tag-prod", "mine"}
    warning = NAMESPACES_WARNING.format("milk, tea")
    prompt = "Continue? [y/N]: Error: cannot prompt for confirmation: use --skip-confirmation (-y)\n"
    assert await run_tag(shell, "remove", "prod") == (1, "", warning + prompt)
    assert await run_tag(shell, "remove", "prod", stdin="n\n") == (
        1,
        "",
        f"{warning}Continue? [y/N]: n\nError: aborted, nothing was changed\n",
    )
    deleted = (
        "deleted MutatingWebhookConfiguration istio-revision-tag-prod\n"
        "deleted Service istio-system/istiod-revision-tag-prod\n"
    )
    assert await run_tag(shell, "remove", "prod", stdin="y\n") == (
        0,
        deleted,
        f"{warning}Continue? [y/N]: y\n",
    )
    assert await run_tag(shell, "remove", "prod", "-y") == (1, "", f"{warning}Error: tag prod does not exist\n")
    assert await run_tag(shell, "remove", "canary") == (
        0,
        "deleted MutatingWebhookConfiguration mine\ndeleted Service istio-system/istiod-revision-tag-canary\n",
        "",
    )
    assert await run_tag(shell, "list") == (0, "TAG   REVISION   NAMESPACES\n", "")


async def test_invalid_tag_is_rejected(shell: Shell) -> None:
    for name, revision, message in (
        ("x_y", "r1", "x_y is not a valid tag: it must be a DNS label of lower case letters, digits and -"),
        ("prod", "r7", "revision r7 is not installed; installed revisions: default, r1, r2"),
        ("r1", "r2", "r1 is the name of a revision; choose another name for the tag"),
    ):
        assert await run_tag(shell, "set", name, "-r", revision) == (1, "", f"Error: {message}\n")
        assert await run_tag(shell, "generate", name, "-r", revision) == (1, "", f"Error: {message}\n")
    assert (await run_tag(shell, "set", "prod"))[0] == 2, "--revision is required"


async def test_duplicate_injection_requires_confirmation(shell: Shell) -> None:
    shell.server.put(injector("foreign", "r9", "prod"))
    warning = DUPLICATE_WARNING.format("istio-revision-tag-prod", "foreign", "r9", "istio.io/rev=prod")
    question = "Pods would be injected twice. Continue? [y/N]: "
    assert await run_tag(shell, "set", "prod", "-r", "r1", stdin="n\n") == (
        1,
        "",
        f"{warning}{question}n\nError: aborted, nothing was changed\n",
    )
    assert f"{PREFIX}istio-revision-tag-prod" not in state_of(shell.server)
    assert await run_tag(shell, "set", "prod", "-r", "r1", "-y") == (
        0,
        (
            "✔ The tag prod points to revision r1.\n"
            "To use it in a namespace: kubectl label namespace NAMESPACE istio.io/rev=prod istio-injection-\n"
        ),
        warning,
    )
    assert f"{PREFIX}istio-revision-tag-prod" in state_of(shell.server)
    assert await run_tag(shell, "set", "prod", "-r", "r1", "-y", "--overwrite") == (
        0,
        (
            "✔ The tag prod points to revision r1.\n"
            "To use it in a namespace: kubectl label namespace NAMESPACE istio.io/rev=prod istio-injection-\n"
        ),
        warning,
    )


async def test_default_tag_replaces_the_default_revision(shell: Shell) -> None:
    shell.server.delete(injector("injector-r1", "r1"))
    shell.server.put(injector("injector-r1", "r1", "nobody"))
    foreign = injector("foreign", "r9")
    foreign["webhooks"][0]["namespaceSelector"] = {"matchLabels": {"istio-injection": "enabled"}}
    shell.server.put(foreign)
    status, stdout, stderr = await run_tag(shell, "set", "default", "-r", "r1", "-y")
    assert (status, stdout) == (0, "✔ The tag default points to revision r1.\n")
    assert sorted(re.findall(r"and (\S+) \(revision", stderr)) == ["foreign", "injector-r1", "injector-r2"], (
        "the injector of revision default is deactivated"
    )
    assert DUPLICATE_WARNING.format("istio-revision-tag-default", "foreign", "r9", "istio-injection=enabled") in stderr
    state = state_of(shell.server)
    (webhook,) = state[f"{PREFIX}injector-default"]["webhooks"]
    assert {
        webhook[field]["matchLabels"]["istio.io/deactivated"] for field in ("namespaceSelector", "objectSelector")
    } == {"never-match"}
    assert (
        state["ValidatingWebhookConfiguration/istiod-default-validator"]["metadata"]["labels"]["istio.io/tag"]
        == "default"
    )
    assert await run_tag(shell, "list") == (0, "TAG       REVISION   NAMESPACES\ndefault   r1         sugar\n", "")
    _, stdout, _ = await run_tag(shell, "remove", "default", "-y")
    assert stdout == (
        "deleted MutatingWebhookConfiguration istio-revision-tag-default\n"
        "deleted ValidatingWebhookConfiguration istiod-default-validator\n"
        "deleted Service istio-system/istiod-revision-tag-default\n"
    )


async def test_generate_prints_the_tag(shell: Shell) -> None:
    async def generated(*words: str) -> list[Any]:
        status, stdout, stderr = await run_tag(shell, "generate", *words)
        assert (status, stderr) == (0, "")
        assert stdout.removesuffix("\n") == stdout.rstrip("\n") != stdout
        return [plain for plain in yaml.safe_load_all(stdout) if plain["kind"] != "Service"]

    (prod,) = await generated("prod", "-r", "r2")
    assert prod["metadata"] == {
        "name": "istio-revision-tag-prod",
        "labels": prod["metadata"]["labels"]
        | {
            "istio.io/tag": "prod",
            "istio.io/rev": "r2",
            "app.kubernetes.io/version": chart_version(build_info().version),
            "install.operator.istio.io/owning-resource-not-pruned": "true",
        },
    }
    (model,) = injector("", "r2")["webhooks"]
    assert [w["name"] for w in prod["webhooks"]] == [
        "rev.namespace.sidecar-injector.istio.io",
        "rev.object.sidecar-injector.istio.io",
    ]
    for webhook in prod["webhooks"]:
        assert {field: webhook[field] for field in ("clientConfig", "rules", "sideEffects")} == {
            field: model[field] for field in ("clientConfig", "rules", "sideEffects")
        }
    expressions = [
        {"key": "istio.io/rev", "operator": "In", "values": ["prod"]},
        {"key": "istio-injection", "operator": "DoesNotExist"},
    ]
    assert prod["webhooks"][0]["namespaceSelector"] == {"matchExpressions": expressions}
    assert [o["metadata"]["name"] for o in await generated("prod", "-r", "r2", "-i", "control")] == [
        "istio-revision-tag-prod-control"
    ]
    default_tag, everywhere = (
        await generated("default", "-r", "r2"),
        await generated("default", "-r", "r2", "--auto-inject-namespaces"),
    )
    assert [o["kind"] for o in default_tag] == ["MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"]
    assert [len(objects[0]["webhooks"]) for objects in (default_tag, everywhere)] == [4, 5]
    assert not any("tag" in name for name in state_of(shell.server))
