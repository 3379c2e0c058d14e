"""The sentences about the mesh, of which the first is the headline of the dashboard and of the debug pages."""

from __future__ import annotations

from typing import Any

import pytest
from aiohttp.test_utils import TestClient, TestServer

from pilot.config.group_kind import NETWORKING, GroupKind
from pilot.config.kinds.kubernetes import ENDPOINT_SLICE
from pilot.config.problem import ObjectRef, Problem
from pilot.debug.application import application
from pilot.debug.changes import ChangedObject
from pilot.debug.dashboard.findings import MeshState, find_all
from pilot.debug.dashboard.stream import EventStream
from pilot.debug.finding_parts import MeshFinding, moment_text
from pilot.lib.xds_types import BY_SHORT_NAME
from pilot.mesh.model.nack import Nack, NackKey
from testing.mesh.debug_server import FakeWatch, sources
from testing.mesh.objects import Plain, make, world
from tests.unit.debug.dashboard.test_fleet import connection
from tests.unit.debug.dashboard.test_graph import SLICE, WEB, WEB_POD

ROUTE, RULE = (ObjectRef(GroupKind(NETWORKING, kind), "a", "r") for kind in ("VirtualService", "DestinationRule"))
UNREADY = Problem(
    code="no-ready-endpoint",
    object=ObjectRef(ENDPOINT_SLICE.id, "a", "web"),
    message="web has none",
)
NOW = 1_700_000_000.0


def text(finding: MeshFinding, now: float = NOW) -> str:
    parts = (part if isinstance(part, str) else getattr(part, "text", None) for part in finding.parts)
    return "".join(
        one if one is not None else moment_text(part, now)  # type: ignore[arg-type]
        for one, part in zip(parts, finding.parts, strict=True)
    )


async def sentences(
    *problems: Problem, objects: tuple[Plain, ...] = (WEB, WEB_POD, SLICE), clients: Any = ()
) -> list[str]:
    findings = await EventStream(sources(world(*objects).mesh, *clients, problems=list(problems))).findings()
    return [f"{finding.level}: {text(finding)}" for finding in findings]


async def test_mesh_without_problems() -> None:
    client = connection("web-0.a", cds=FakeWatch())
    assert await sentences(clients=(client,)) == ["ok: The only proxy is up to date, and there are no errors."]
    assert await sentences() == ["note: No proxy is connected."]
    assert await sentences(objects=()) == ["note: There are no services and no proxies yet."]


def problem(code: str, ref: ObjectRef = ROUTE) -> Problem:
    return Problem(code=code, object=ref, path="spec.http[0]", message="m")


@pytest.mark.parametrize(
    ("problems", "expected"),
    [
        ((problem("c"),), ["bad: VirtualService a/r has an error at spec.http[0]: m."]),
        (
            (problem("refused"), problem("c", RULE), UNREADY),
            [
                "bad: 3 errors in objects, the first in DestinationRule a/r: m.",
                "bad: web has none (EndpointSlice a/web).",
            ],
        ),
        ((UNREADY,), ["bad: web has none (EndpointSlice a/web)."]),
        ((UNREADY, UNREADY), ["bad: 2 services have no ready endpoint. The first: web has none."]),
    ],
)
async def test_number_of_errors_is_that_of_the_list(problems: tuple[Problem, ...], expected: list[str]) -> None:
    assert await sentences(*problems) == expected


def shown(*rows: Plain, changes: list[Plain] | None = None, **counts: int) -> MeshState:
    fleet = {"proxies": 250, "refused": 0, "stale": 0, "waiting": 0, "synced": 250, "unhealthy": list(rows)} | counts
    problems = {"items": [], "counts": {"errors": 0, "warnings": 0, "infos": 0}}
    return MeshState({"fleet": fleet, "problems": problems, "changes": changes or []}, [], [], 1)


def row(state: str, **fields: Any) -> Plain:
    refs = [
        {"group": NETWORKING, "kind": kind, "namespace": "a", "name": "r"}
        for kind in ("DestinationRule", "VirtualService")
    ]
    rejection = {"error": "rds: no such cluster", "error_types": ["rds"], "error_since": NOW - 90, "causes": refs}
    names = {"id": "web-0.a-1", "name": "web-0", "namespace": "a", "state": state, "waits_since": NOW - 40}
    return names | rejection | fields


@pytest.mark.parametrize(
    ("state", "expected"),
    [
        (
            shown(row("refused"), refused=1),
            "bad: web-0.a rejects its routes since 22:11 UTC (1 min): no such cluster; built from VirtualService a/r and DestinationRule a/r.",
        ),
        (
            shown(row("refused", causes=[]), refused=3),
            "bad: web-0.a and 2 other proxies reject their routes since 22:11 UTC (1 min): no such cluster.",
        ),
        (shown(row("stale"), stale=1), "warn: web-0.a, one of 250 proxies, is not responding for 40 s."),
        (shown(row("stale"), stale=30), "bad: 30 of 250 proxies are not responding, the first for 40 s."),
        (
            shown(
                changes=[{"objects": [], "time": NOW, "done": False, "proxies": 20, "unchanged": 4, "acknowledged": 3}]
            ),
            "ok: All 250 proxies are up to date, and there are no errors.",
        ),
    ],
)
def test_proxies_that_are_not_up_to_date(state: MeshState, expected: str) -> None:
    first, *_ = find_all(state, NOW)
    assert f"{first.level}: {text(first)}" == expected


def test_objects_that_changed_after_a_rejection_are_not_its_cause() -> None:
    later = {
        "time": NOW,
        "done": True,
        "proxies": 0,
        "objects": [{"kind": "VirtualService", "namespace": "a", "name": "r"}],
    }
    (first,) = find_all(shown(row("refused"), refused=1, changes=[later]), NOW)
    assert text(first).endswith("; built from DestinationRule a/r.")


def test_certificates_in_use_and_faults() -> None:
    def certificate(name: str, days: float, *users: str) -> Plain:
        return {"name": name, "ends": NOW + days * 86400, "usedBy": users}

    certificates = [
        certificate("Secret a/x", -3, "Gateway a/g"),
        certificate("Secret a/y", 3, "Gateway a/g"),
        certificate("Secret a/z", -1),
    ]
    findings = find_all(shown()._replace(certificates=certificates, faults=[ROUTE]), NOW)
    assert [f"{one.level}: {text(one)}" for one in findings] == [
        "bad: The certificate of Secret a/x expired 3 days ago.",
        "warn: VirtualService a/r injects faults into requests.",
        "warn: The certificate of Secret a/y expires in 3 days.",
    ]


async def test_faults_are_those_of_virtual_services() -> None:
    route = "{hosts: [web], http: [{fault: {abort: {httpStatus: 500, percentage: {value: 1}}}, route: [{destination: {host: web}}]}]}"
    assert await sentences(objects=(WEB, make("VirtualService", "r", route))) == [
        "warn: VirtualService a/r injects faults into requests."
    ]


async def test_index_of_the_debug_pages_begins_with_the_headline() -> None:
    mesh_world = world(WEB, WEB_POD, SLICE)
    client = connection("web-0.a", lds=FakeWatch(nonce_sent="n2", last_error="<b>no", rejected_since=NOW))
    client.proxy_key = mesh_world.connect(client.proxy)
    nacks = mesh_world.mesh.nacks
    mesh_world.mesh.commit(
        [(nacks, NackKey(client.proxy_key, BY_SHORT_NAME["lds"]), Nack("web-0.a", "LDS", "no", (ROUTE,)))]
    )
    page_sources = sources(mesh_world.mesh, client)
    page_sources.changes.record(1, [ChangedObject("add", "", "Service", "a", "web")], 1, 0, 0)
    async with TestClient(TestServer(application(page_sources))) as http, http.get("/") as response:
        html = await response.text()
    first = html.partition("<main>\n")[2].splitlines()[0]
    assert first.startswith(
        '<p class="headline bad"><a href="/debug/dashboard#/proxy/web-0.a-1">web-0.a</a> rejects its listeners since 22:13 UTC'
    )
    assert (
        ': &lt;b&gt;no; built from <a href="/debug/dashboard#/object/networking.istio.io/VirtualService/a/r">VirtualService a/r</a>.'
        in first
    )
    assert first.endswith('<a href="/debug/dashboard">Open the dashboard</a></p>')
