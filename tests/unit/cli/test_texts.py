"""Exact output of pilotctl for statuses, versions, manifest differences and installation progress."""

from __future__ import annotations

import os
import pathlib
from collections.abc import Callable
from typing import Any

import pytest

from pilot.cli.ctl.client import CommandError, PageClient
from pilot.cli.ctl.files import read_files
from pilot.cli.ctl.progress import progress_reporter
from pilot.cli.ctl.tables import listeners
from pilot.cli.pilotctl import main
from pilot.install.installer import StepProgress
from pilot.lib.build_info import build_info
from pilot.lib.xds_types import BY_SHORT_NAME

Run = Callable[..., str]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    def run(*words: str, status: int = 0) -> str:
        assert main(words) == status
        return capsys.readouterr().out

    return run


@pytest.fixture
def pages(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Responses of the control plane by path. Exceptions are raised."""
    responses: dict[str, Any] = {}

    def respond(_: PageClient, path: str, **query: str) -> Any:
        value = responses[path]
        if isinstance(value, Exception):
            raise value
        return value

    monkeypatch.setattr(PageClient, "get", respond)
    monkeypatch.setattr(PageClient, "text", respond)
    return responses


# -- status ------------------------------------------------------------------------------------------------------------


def condition(kind: str, status: str, reason: str = "R", message: str = "") -> dict[str, str]:
    return {"type": kind, "status": status, "reason": reason, "message": message}


def test_gateway_has_a_row_per_listener(run: Run, pages: dict[str, Any]) -> None:
    pages["statusz"] = [
        {
            "kind": "Gateway",
            "namespace": "shop",
            "name": "front",
            "status": {
                "addresses": [{"value": "192.0.2.1"}, {"value": "a.example"}],
                "conditions": [
                    condition("Accepted", "True"),
                    condition("Programmed", "False", "Pending", "no address"),
                    condition("Other", "False"),
                ],
                "listeners": [
                    {
                        "name": "http",
                        "attachedRoutes": 2,
                        "conditions": [
                            condition("Accepted", "False", "Taken", "in use"),
                            condition("Conflicted", "True", "Taken", "in use"),
                            condition("ResolvedRefs", "True"),
                        ],
                    },
                    {
                        "name": "quiet",
                        "attachedRoutes": 0,
                        "conditions": [condition("Conflicted", "False", "No", "never shown")],
                    },
                ],
            },
        }
    ]
    assert [line.split() for line in run("status").splitlines()[1:]] == [
        ["Gateway", "shop/front", "192.0.2.1,", "a.example", "True", "False", "Pending:", "no", "address"],
        ["listener", "http,", "2", "routes", "False", "True", "Taken:", "in", "use"],
        ["listener", "quiet,", "0", "routes"],
    ]


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        (
            {
                "parents": [
                    {"parentRef": {"kind": "Gateway", "name": "g"}, "conditions": [condition("Accepted", "True")]}
                ]
            },
            "Gateway g True",
        ),
        (
            {
                "parents": [
                    {
                        "parentRef": {"kind": "Gateway", "namespace": "n", "name": "g", "sectionName": "s"},
                        "conditions": [],
                    }
                ]
            },
            "Gateway n/g:s",
        ),
        (
            {"ancestors": [{"ancestorRef": {"kind": "Service", "name": "g", "port": 80}, "conditions": []}]},
            "Service g:80",
        ),
        ({"loadBalancer": {"ingress": [{"ip": "192.0.2.1"}, {"hostname": "a.example"}]}}, "192.0.2.1, a.example"),
        ({"loadBalancer": {"ingress": []}}, "no address"),
    ],
)
def test_attachment_column(run: Run, pages: dict[str, Any], status: dict[str, Any], expected: str) -> None:
    pages["statusz"] = [{"kind": "X", "namespace": "", "name": "x", "status": status}]
    (line,) = run("status").splitlines()[1:]
    assert " ".join(line.split()) == f"X x {expected}"


def test_status_without_objects(run: Run, pages: dict[str, Any]) -> None:
    pages["statusz"] = []
    assert run("status", "-n", "shop") == "No objects.\n"


# -- proxy-status and version ------------------------------------------------------------------------------------------


def test_proxy_status_of_one_proxy(run: Run, pages: dict[str, Any]) -> None:
    resources = {
        BY_SHORT_NAME["cds"]: {"sent": "b", "acked": "a", "sentTime": "T"},
        BY_SHORT_NAME["eds"]: {},
        BY_SHORT_NAME["lds"]: {"sent": "b", "lastError": "bad"},
    }
    proxy = {
        "proxy": "tea-1.shop",
        "proxy_type": "sidecar",
        "istio_version": "1.28.0",
        "cluster_id": "west",
        "resources": resources,
    }
    pages["syncz"], pages["config_dump"] = [proxy], {}
    assert [line.split() for line in run("proxy-status", "tea-1").splitlines()] == [
        ["tea-1.shop", "(sidecar,", "1.28.0)", "in", "west"],
        ["TYPE", "STATE", "SENT", "ACKNOWLEDGED", "TIME"],
        ["CDS", "STALE", "b", "a", "T"],
        ["EDS", "NOT", "SENT", "-", "-", "-"],
        ["LDS", "ERROR", "b", "-", "-"],
        ["tea-1.shop", "rejected", "its", "lds:", "bad"],
    ]


@pytest.mark.parametrize(
    ("proxies", "line"),
    [
        ([], "none (no proxies are connected)"),
        (["1.28.0"], "1.28.0 (1 proxy)"),
        (["1.28.0", "1.27.1", "1.28.0"], "1.27.1 (1 proxy), 1.28.0 (2 proxies)"),
    ],
)
def test_proxy_versions_are_counted(run: Run, pages: dict[str, Any], proxies: list[str], line: str) -> None:
    pages["version"] = "2\n"
    pages["syncz"] = [{"proxy": f"p{n}", "istio_version": version} for n, version in enumerate(proxies)]
    assert run("version").splitlines() == [
        f"client version: {build_info().version}",
        "control plane version: 2",
        f"data plane version: {line}",
    ]


def test_version_of_an_unreachable_control_plane(run: Run, pages: dict[str, Any]) -> None:
    pages["version"] = CommandError("nobody answers")
    assert run("version").splitlines() == [
        f"client version: {build_info().version}",
        "control plane version: nobody answers",
    ]


def test_missing_prefix_length_is_zero() -> None:
    chains = [
        {
            "filterChainMatch": {
                "prefixRanges": [{"addressPrefix": "0.0.0.0"}, {"addressPrefix": "::1", "prefixLen": 128}]
            }
        }
    ]
    (row,) = listeners.rows(
        [{"name": "l", "address": {"socketAddress": {"address": "0.0.0.0", "portValue": 80}}, "filterChains": chains}]
    )
    assert "address 0.0.0.0/0, ::1" in row


# -- files and progress ------------------------------------------------------------------------------------------------


def test_manifest_diff_compares_objects(run: Run, tmp_path: pathlib.Path) -> None:
    first, second = tmp_path / "one.yaml", tmp_path / "other.yaml"
    common = "---\nkind: Namespace\nmetadata: {name: c}\n"
    first.write_text(
        f"kind: Service\nmetadata: {{name: a, namespace: n}}\nspec: {{x: 1, y: 2}}\n---\nkind: Pod\nmetadata: {{name: p}}\n{common}"
    )
    second.write_text(
        f"kind: Service\nmetadata: {{name: a, namespace: n}}\nspec: {{y: 2, x: 3}}\n---\nkind: Job\n{common}"
    )
    lines = run("manifest", "diff", str(first), str(second), status=1).splitlines()
    assert lines[:4] == ["only in the first: Pod p", "only in the second: Job ", "--- Service n/a", "+++ Service n/a"]
    assert [line for line in lines[5:] if line[0] in "+-"] == ["-  x: 1", "+  x: 3"]
    assert "Namespace" not in "\n".join(lines)


def test_progress_without_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    with progress_reporter() as report:
        for progress in (
            StepProgress("Base", 0, 3, "", 0.1),
            StepProgress("Base", 1, 3, "applying", 0.2),
            StepProgress("Base", 3, 3, "", 0.31, finished=True),
            StepProgress("Pilot", 0, 2, "", 0.0),
            StepProgress("Pilot", 1, 2, "istiod: 0 of 1 ready", 1.0),
            StepProgress("Pilot", 1, 2, "istiod: 0 of 1 ready", 2.0),
            StepProgress("Pilot", 1, 2, "istiod not found", 3.0),
            StepProgress("Pilot", 1, 2, "it takes too long", 125.0, failed=True),
        ):
            report(progress)
    assert capsys.readouterr().out.splitlines() == [
        "- Base: 3 objects",
        "✔ Base, 0.3 s",
        "- Pilot: 2 objects",
        "- Pilot: istiod: 0 of 1 ready",
        "- Pilot: istiod not found",
        "✘ Pilot, 2 min 5 s: it takes too long",
    ]


def test_profile_config_path(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("profile", "dump", "minimal", "--config-path", "profile") == "minimal\n"
    assert main(("profile", "dump", "minimal", "--config-path", "nobody.knows")) == 1
    assert "the path nobody.knows has no value" in capsys.readouterr().err


def test_hidden_folders_are_skipped(tmp_path: pathlib.Path) -> None:
    for place in ("a.yaml", "b/c.yaml", ".d/e.yaml", "b/.f.yaml", "b/g.txt"):
        (tmp_path / place).parent.mkdir(exist_ok=True)
        (tmp_path / place).write_text("x: 1")
    assert [os.path.relpath(name, tmp_path) for name in read_files([str(tmp_path)])] == ["a.yaml", "b/c.yaml"]
