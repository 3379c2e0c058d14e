"""What pilotctl tag prints and changes, word for word, where three revisions and a foreign injector are installed."""

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
from tests.unit.cli.test_install import Shell

PREFIX = "MutatingWebhookConfiguration/"
TWICE = "! {} and {} (revision {}) would both inject pods without injection labels in namespaces labelled {}\n"
FOLLOW = "! these namespaces use the tag and will no longer be injected: {}\n"


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


async def said(shell: Shell, *words: str, answer: str | None = None) -> tuple[int, str, str]:
    """The exit status, standard output and standard error of `pilotctl tag`."""
    done = await shell("tag", *words, answer=answer)
    return done.exit_code, done.stdout, done.stderr


async def test_a_tag_is_set_moved_listed_and_removed(shell: Shell) -> None:
    how = "To use it in a namespace: kubectl label namespace NAMESPACE istio.io/rev=prod istio-injection-\n"
    assert await said(shell, "set", "prod", "-r", "r1") == (0, f"✔ The tag prod points to revision r1.\n{how}", "")
    refused = "Error: tag prod already points to revision r1; use --overwrite to change it\n"
    assert await said(shell, "set", "prod", "-r", "r2") == (1, "", refused)
    assert await said(shell, "set", "prod", "-r", "r2", "--overwrite") == (
        0,
        f"✔ The tag prod points to revision r2.\n{how}",
        "",
    )
    assert await said(shell, "set", "canary", "-r", "r1", "--webhook-name", "mine") == (
        0,
        (
            "✔ The tag canary points to revision r1.\n"
            "To use it in a namespace: kubectl label namespace NAMESPACE istio.io/rev=canary istio-injection-\n"
        ),
        "",
    )
    assert await said(shell, "list") == (
        0,
        "TAG      REVISION   NAMESPACES\ncanary   r1\nprod     r2         milk, tea\n",
        "",
    )
    listed = [
        {"tag": "canary", "revision": "r1", "namespaces": []},
        {"tag": "prod", "revision": "r2", "namespaces": ["milk", "tea"]},
    ]
    assert json.loads((await said(shell, "list", "-o", "json"))[1]) == listed
    injectors = {name.removeprefix(PREFIX) for name in state_of(shell.server) if name.startswith(PREFIX)}
    assert injectors == {"injector-default", "injector-r1", "injector-r2", "istio-revision-tag-prod", "mine"}
    follow = FOLLOW.format("milk, tea")
    unanswered = "Continue? [y/N]: Error: cannot prompt for confirmation: use --skip-confirmation (-y)\n"
    assert await said(shell, "remove", "prod") == (1, "", follow + unanswered)
    assert await said(shell, "remove", "prod", answer="n\n") == (
        1,
        "",
        f"{follow}Continue? [y/N]: n\nError: aborted, nothing was changed\n",
    )
    deleted = "deleted MutatingWebhookConfiguration {}\n"
    assert await said(shell, "remove", "prod", answer="y\n") == (
        0,
        deleted.format("istio-revision-tag-prod"),
        f"{follow}Continue? [y/N]: y\n",
    )
    assert await said(shell, "remove", "prod", "-y") == (1, "", f"{follow}Error: tag prod does not exist\n")
    assert await said(shell, "remove", "canary") == (0, deleted.format("mine"), "")
    assert await said(shell, "list") == (0, "TAG   REVISION   NAMESPACES\n", "")


async def test_what_no_tag_can_be_is_refused(shell: Shell) -> None:
    for name, revision, why in (
        ("x_y", "r1", "x_y is not a valid tag: it must be a DNS label of lower case letters, digits and -"),
        ("prod", "r7", "revision r7 is not installed; installed revisions: default, r1, r2"),
        ("r1", "r2", "r1 is the name of a revision; choose another name for the tag"),
    ):
        assert await said(shell, "set", name, "-r", revision) == (1, "", f"Error: {why}\n")
        assert await said(shell, "generate", name, "-r", revision) == (1, "", f"Error: {why}\n")
    assert (await said(shell, "set", "prod"))[0] == 2, "a revision must be said"


async def test_pods_are_not_injected_twice_without_a_question(shell: Shell) -> None:
    shell.server.put(injector("foreign", "r9", "prod"))
    warning = TWICE.format("istio-revision-tag-prod", "foreign", "r9", "istio.io/rev=prod")
    question = "Pods would be injected twice. Continue? [y/N]: "
    assert await said(shell, "set", "prod", "-r", "r1", answer="n\n") == (
        1,
        "",
        f"{warning}{question}n\nError: aborted, nothing was changed\n",
    )
    assert f"{PREFIX}istio-revision-tag-prod" not in state_of(shell.server)
    assert await said(shell, "set", "prod", "-r", "r1", "-y") == (
        0,
        (
            "✔ The tag prod points to revision r1.\n"
            "To use it in a namespace: kubectl label namespace NAMESPACE istio.io/rev=prod istio-injection-\n"
        ),
        warning,
    )
    assert f"{PREFIX}istio-revision-tag-prod" in state_of(shell.server)
    assert await said(shell, "set", "prod", "-r", "r1", "-y", "--overwrite") == (
        0,
        (
            "✔ The tag prod points to revision r1.\n"
            "To use it in a namespace: kubectl label namespace NAMESPACE istio.io/rev=prod istio-injection-\n"
        ),
        warning,
    )


async def test_the_tag_default_takes_the_place_of_the_revision_default(shell: Shell) -> None:
    shell.server.delete(injector("injector-r1", "r1"))
    shell.server.put(injector("injector-r1", "r1", "nobody"))
    foreign = injector("foreign", "r9")
    foreign["webhooks"][0]["namespaceSelector"] = {"matchLabels": {"istio-injection": "enabled"}}
    shell.server.put(foreign)
    status, printed, warned = await said(shell, "set", "default", "-r", "r1", "-y")
    assert (status, printed) == (0, "✔ The tag default points to revision r1.\n")
    assert sorted(re.findall(r"and (\S+) \(revision", warned)) == ["foreign", "injector-r1", "injector-r2"], (
        "those of the revision default end"
    )
    assert TWICE.format("istio-revision-tag-default", "foreign", "r9", "istio-injection=enabled") in warned
    state = state_of(shell.server)
    (ended,) = state[f"{PREFIX}injector-default"]["webhooks"]
    assert {
        ended[field]["matchLabels"]["istio.io/deactivated"] for field in ("namespaceSelector", "objectSelector")
    } == {"never-match"}
    assert (
        state["ValidatingWebhookConfiguration/istiod-default-validator"]["metadata"]["labels"]["istio.io/tag"]
        == "default"
    )
    assert await said(shell, "list") == (0, "TAG       REVISION   NAMESPACES\ndefault   r1         sugar\n", "")
    _, printed, _ = await said(shell, "remove", "default", "-y")
    assert printed == (
        "deleted MutatingWebhookConfiguration istio-revision-tag-default\ndeleted ValidatingWebhookConfiguration istiod-default-validator\n"
    )


async def test_a_tag_is_printed_as_it_would_be_set(shell: Shell) -> None:
    async def generated(*words: str) -> list[Any]:
        status, printed, wrong = await said(shell, "generate", *words)
        assert (status, wrong) == (0, "")
        assert printed.removesuffix("\n") == printed.rstrip("\n") != printed
        return list(yaml.safe_load_all(printed))

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
    followed = [
        {"key": "istio.io/rev", "operator": "In", "values": ["prod"]},
        {"key": "istio-injection", "operator": "DoesNotExist"},
    ]
    assert prod["webhooks"][0]["namespaceSelector"] == {"matchExpressions": followed}
    assert [o["metadata"]["name"] for o in await generated("prod", "-r", "r2", "-i", "control")] == [
        "istio-revision-tag-prod-control"
    ]
    usual, everywhere = (
        await generated("default", "-r", "r2"),
        await generated("default", "-r", "r2", "--auto-inject-namespaces"),
    )
    assert [o["kind"] for o in usual] == ["MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"]
    assert [len(found[0]["webhooks"]) for found in (usual, everywhere)] == [4, 5]
    assert not any("tag" in name for name in state_of(shell.server))
