"""Analysis and validation of configuration files, with file and line of each problem."""

from __future__ import annotations

import json
import pathlib
from collections.abc import Callable
from typing import Any

import pytest

from pilot.cli.ctl.client import PageClient
from pilot.cli.pilotctl import main

SERVICE = (
    "apiVersion: v1\nkind: Service\nmetadata: {name: tea, namespace: shop}\nspec:\n  ports: [{name: http, port: 80}]\n"
)
HEAD = "apiVersion: networking.istio.io/v1\nkind: VirtualService\nmetadata: {name: tea, namespace: shop}\nspec:\n  hosts: [tea]\n  http:\n"
ROUTE = HEAD + "  - route:\n    - destination:\n        host: tea\n        subset: gone\n"
BROKEN = HEAD + "  - match:\n    - uri: {regex: '('}\n    route: [{destination: {host: tea}}]\n"
Run = Callable[..., tuple[str, str]]


@pytest.fixture
def run(tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("KUBECONFIG", "KUBERNETES_SERVICE_HOST"):
        monkeypatch.delenv(name, raising=False)

    def run(*words: str, status: int, **files: str) -> tuple[str, str]:
        for name, text in files.items():
            path = tmp_path / f"{name}.yaml"
            path.write_text(text)
        assert main(words) == status
        captured = capsys.readouterr()
        return captured.out, captured.err

    return run


def test_cross_object_problem_has_file_and_line(run: Run) -> None:
    out, _ = run("analyze", ".", a=SERVICE, b=ROUTE, status=79)
    assert out == (
        "Error [IST0101 subset-not-found] (VirtualService shop/tea ./b.yaml:10) spec.http[0].route[0].destination.subset: "
        "no DestinationRule for tea.shop.svc.cluster.local defines the subset gone, so requests get 503\n1 error.\n"
        "Checked 2 objects in 2 files.\n"
    )


def test_invalid_object_fails(run: Run) -> None:
    out, _ = run("analyze", "a.yaml", "b.yaml", a=SERVICE, b=BROKEN, status=79)
    assert "Error [IST0122 bad-regex] (VirtualService shop/tea b.yaml:8) spec.http[0].match[0].uri" in out


def test_json_output(run: Run) -> None:
    problems: list[dict[str, Any]] = json.loads(run("analyze", ".", "-o", "json", a=SERVICE, b=ROUTE, status=79)[0])
    assert [(p["file"], p["line"], p["code"]) for p in problems] == [("./b.yaml", 10, "subset-not-found")]


def test_other_namespaces_are_excluded(run: Run) -> None:
    calm = SERVICE.replace("namespace: shop", "namespace: calm")
    assert run("analyze", ".", "-n", "calm", a=SERVICE, b=ROUTE, c=calm, status=0)[0] == (
        "✔ No validation issues found in namespace calm.\nChecked 3 objects in 3 files.\n"
    )


def test_duplicate_objects_and_syntax_errors(run: Run) -> None:
    out, _ = run("analyze", ".", a=SERVICE, b=SERVICE, c="{", status=79)
    assert (
        "Warning [duplicate-object] (Service shop/tea ./b.yaml:3) metadata.name: this object is also defined in "
        "./a.yaml:3, which takes precedence" in out
    )
    assert "Error [syntax-error] (./c.yaml:2)" in out


def test_mesh_config_file_is_validated(run: Run) -> None:
    out, _ = run(
        "analyze", "a.yaml", "--meshConfigFile", "mesh.yaml", a=SERVICE, mesh="connectTimeout: soon\n", status=79
    )
    assert "connectTimeout" in out


def test_running_control_plane_is_analyzed_without_files(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PageClient, "get", lambda *_, **__: [{"severity": "error", "code": "bad", "message": "a\nb"}])
    assert run("analyze", status=79)[0] == (
        "Error [bad] a\\nb\n1 error.\nChecked the configuration of the control plane at http://127.0.0.1:15014. "
        "Objects that it does not read, such as Deployments, were not checked: kubeconfig ~/.kube/config: no such file; "
        "set --kubeconfig or KUBECONFIG to a file.\n"
    )
    assert run("analyze", "--use-kube=false", status=79)[0].endswith("http://127.0.0.1:15014.\n")
    assert "no such file" in run("analyze", "-k", status=1)[1]


def test_files_need_no_usable_kubeconfig(run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path) -> None:
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "missing"))
    assert run("analyze", "a.yaml", a=SERVICE, status=0) == (
        "✔ No validation issues found.\nChecked 1 object in 1 file.\n",
        "",
    )


@pytest.mark.parametrize("option", [("-k",), ("-k", "true"), ("-k=true",), ("--use-kube",), ("--use-kube=1",)])
def test_file_may_follow_the_option_for_the_cluster(
    run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path, option: tuple[str, ...]
) -> None:
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "missing"))
    assert f"kubeconfig {tmp_path}/missing: no such file" in run("analyze", *option, "a.yaml", a=SERVICE, status=1)[1]


def test_note_says_that_a_selected_cluster_is_not_read_for_files(run: Run) -> None:
    _, error = run("--context", "edge", "analyze", "a.yaml", a=SERVICE, status=0)
    assert error == "Note: only the files are checked; -k checks them together with the cluster's objects\n"
    assert run("--context", "edge", "analyze", "-k=false", "a.yaml", status=0)[1] == ""


def test_files_may_follow_the_option_of_validate(run: Run) -> None:
    assert run("analyze", "-f", "a.yaml", "b.yaml", a=SERVICE, b=BROKEN, status=79)[0].endswith(
        "Checked 2 objects in 2 files.\n"
    )


def test_missing_file_is_reported(run: Run) -> None:
    assert run("analyze", "nowhere.yaml", status=1)[1] == "Error: cannot read nowhere.yaml: No such file or directory\n"


def test_validate_reports_each_file(run: Run) -> None:
    out, err = run("validate", "-f", ".", a=SERVICE, b=BROKEN, c=ROUTE.replace("VirtualService", "Extension"), status=1)
    assert '"./a.yaml" is valid' in out
    assert '"./c.yaml" has warnings:' in out
    assert err.startswith(
        'Error: "./b.yaml" is not valid:\n  * line 8: networking.istio.io/VirtualService shop/tea spec.http[0].match[0].uri'
    )


def test_validate_accepts_a_valid_file(run: Run) -> None:
    assert run("validate", "-f", "a.yaml", a=SERVICE, status=0) == ('"a.yaml" is valid\n', "")


def test_missing_provider_names_the_option_for_the_mesh_config(run: Run) -> None:
    telemetry = (
        "apiVersion: telemetry.istio.io/v1\nkind: Telemetry\nmetadata: {name: t, namespace: shop}\n"
        "spec: {tracing: [{providers: [{name: otel}]}]}\n"
    )
    option = "--meshConfigFile FILE names that of the mesh"
    assert option in run("analyze", "a.yaml", a=telemetry, status=0)[0]
    mesh = "extensionProviders: [{name: zip, zipkin: {service: z, port: 1}}]\n"
    text = run("analyze", "a.yaml", "--meshConfigFile", "mesh.yaml", mesh=mesh, status=0)[0]
    assert "zip" in text
    assert option not in text
