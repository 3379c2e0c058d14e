"""Exact output of pilotctl status."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.cli.ctl.conftest import Run


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
    pages["connections"] = {"totalClients": 0}
    assert run("status", "-n", "shop") == "No objects in the namespace shop.\n"
    assert run("status") == "No objects.\n"
