"""pilotctl operator init, dump and remove, and the operator's chart."""
from __future__ import annotations

import pathlib
from collections.abc import AsyncIterator

import pytest
import yaml
from click.testing import CliRunner

from deploy.generated import stale
from deploy.operator_roles import IN_CLUSTER, IN_NAMESPACE, IN_OWN_NAMESPACE
from pilot.cli.pilot_operator import main
from pilot.cli.pilotctl import pilotctl
from pilot.operator.custom import FINALIZER
from tests.support.apiserver.server import ApiServer
from tests.support.controllers import Controllers
from tests.support.installations import SYSTEM, state_of
from tests.support.kube import until
from tests.support.operated import OWN, Operated, light
from tests.unit.test_pilotctl_install import Shell


@pytest.fixture
async def shell(tmp_path: pathlib.Path) -> AsyncIterator[Shell]:
    server = ApiServer()
    Controllers(server)
    await server.start()
    yield Shell(server, tmp_path)
    await server.stop()


async def test_init_makes_every_watched_namespace_and_remove_leaves_what_is_installed(shell: Shell, tmp_path: pathlib.Path) -> None:
    file = tmp_path / "mesh.yaml"
    file.write_text(yaml.safe_dump({"metadata": {"name": "mesh", "namespace": "two"}, "spec": {"profile": "empty"}}))
    done = await shell("operator", "init", "--watchedNamespaces", "one,two", "-f", str(file), "--hub", "example.com", "--tag", "1")
    assert done.exit_code == 0, done.output
    state = state_of(shell.server)
    assert {"Namespace/one", "Namespace/two", f"Namespace/{OWN}", "Role/one/istio-operator", "Role/two/istio-operator"} <= set(state)
    assert state[f"Deployment/{OWN}/istio-operator"]["spec"]["template"]["spec"]["containers"][0]["image"] == "example.com/operator:1"
    assert state["IstioOperator/two/mesh"]["spec"] == {"profile": "empty"}
    held = {**state["IstioOperator/two/mesh"], "metadata": {**state["IstioOperator/two/mesh"]["metadata"], "finalizers": [FINALIZER]}}
    shell.server.put(held)
    asked = await shell("operator", "remove", answer="n\n")
    assert (asked.exit_code, "nobody will look after these any more: two/mesh" in asked.stderr) == (1, True)
    gone = await shell("operator", "remove", "-y")
    assert gone.exit_code == 0, gone.output
    left = state_of(shell.server)
    assert left["IstioOperator/two/mesh"]["metadata"].get("finalizers") in (None, [])
    assert {name for name in left if "istio-operator" in name} == {f"Namespace/{OWN}"}
    assert (await shell("operator", "remove", "-y")).exit_code == 1


async def test_an_istiooperator_that_nobody_would_see_is_refused(shell: Shell, tmp_path: pathlib.Path) -> None:
    file = tmp_path / "mesh.yaml"
    file.write_text(yaml.safe_dump({"metadata": {"name": "mesh", "namespace": "three"}, "spec": {}}))
    done = await shell("operator", "init", "--watchedNamespaces", "one,two", "-f", str(file))
    assert (done.exit_code, "three is none of the namespaces that are watched: one, two" in done.stderr) == (1, True)
    assert state_of(shell.server) == {}


def test_dump_prints_roles_for_the_watched_namespaces_alone() -> None:
    def kinds(watched: str) -> list[tuple[str, str]]:
        printed = CliRunner().invoke(pilotctl, ["operator", "dump", "--watchedNamespaces", watched]).stdout
        found = list(yaml.safe_load_all(printed))
        rules = sum(len(o["rules"]) for o in found if o["kind"] == "ClusterRole")
        return [*((o["kind"], o["metadata"].get("namespace", "")) for o in found if o["kind"] == "Role"), ("rules", str(rules))]

    some, everywhere = kinds("a, b,"), kinds("")
    assert some[:-1] == [("Role", "a"), ("Role", "b"), ("Role", OWN)]
    assert everywhere[:-1] == [("Role", OWN)]
    assert int(some[-1][1]) < int(everywhere[-1][1])


async def test_the_operator_uses_no_other_rights_than_its_roles_and_each_of_them() -> None:
    async with Operated(SYSTEM, SYSTEM) as o:
        await o.stop()
        o.server.requests.clear()
        await o.start(lease=OWN)
        await o.write(SYSTEM, "mesh", light({"profile": "ambient", "revision": "r1"}))
        await o.is_healthy(SYSTEM, "mesh")
        await o.remove(SYSTEM, "mesh")
        await until(lambda: o.custom(SYSTEM, "mesh") is None)
        await o.stop()
        asked = {(a.resource.group, a.resource.plural + (f"/{a.subresource}" if a.subresource else "")) for a in o.server.requests}
    granted = {(r.group, r.resource) for r in (*IN_CLUSTER, *IN_NAMESPACE, *IN_OWN_NAMESPACE)}
    assert asked <= granted
    assert granted - asked <= {("", "events"), ("k8s.cni.cncf.io", "network-attachment-definitions"), ("networking.istio.io", "envoyfilters")}


def test_generated_files_are_current() -> None:
    assert stale() == []


def test_the_command_says_what_it_needs(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("WATCH_NAMESPACE", raising=False)
    assert main(["server"]) == 1
    assert "WATCH_NAMESPACE must be set: namespaces between commas, or empty for all" in capsys.readouterr().err
    assert main(["server", "--help"]) == 0
    assert "WATCH_NAMESPACE" in capsys.readouterr().out
    assert main(["collateral"]) == 0
