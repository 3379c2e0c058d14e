"""The sentences about the mesh, of which the first is the headline of the dashboard and of the debug pages."""

from __future__ import annotations

from typing import Any

import pytest
from aiohttp.test_utils import TestClient, TestServer
from msgspec.structs import replace

from pilot.config.group_kind import NETWORKING, GroupKind
from pilot.config.kinds.kubernetes import ENDPOINT_SLICE
from pilot.config.problem import ObjectRef, Problem
from pilot.debug.application import application
from pilot.debug.changes import ChangedObject
from pilot.debug.dashboard.findings import InjectedFault, MeshState, find_all
from pilot.debug.dashboard.stream import EventStream
from pilot.debug.finding_parts import MeshFinding, moment_text
from pilot.lib.xds_types import BY_SHORT_NAME
from pilot.mesh.model.nack import Nack, NackKey
from testing.mesh.debug_server import FakeWatch, sources
from testing.mesh.listeners import service
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
        (
            (problem("c"),),
            ["bad: VirtualService a/r has an error at spec.http[0]: m, so it is not in force."],
        ),
        (
            (problem("refused"), problem("c", RULE), UNREADY),
            [
                "bad: web has none (EndpointSlice a/web).",
                "bad: DestinationRule a/r has an error at spec.http[0]: m, so it is not in force.",
            ],
        ),
        (
            (*(problem("c", RULE),) * 4, UNREADY),
            [
                "bad: web has none (EndpointSlice a/web).",
                *("bad: DestinationRule a/r has an error at spec.http[0]: m, so it is not in force.",) * 2,
                "bad: 2 more errors in objects.",
            ],
        ),
    ],
)
async def test_first_errors_have_a_sentence_each(problems: tuple[Problem, ...], expected: list[str]) -> None:
    assert await sentences(*problems) == expected


def missing(path: str = "spec.http[0].route[0].destination.subset") -> Problem:
    return Problem(code="subset-not-found", object=ROUTE, path=path, message="no subset v3")


TO = "{destination: {host: web, subset: v3}%s}"


@pytest.mark.parametrize(
    ("spec", "path", "expected"),
    [
        (
            f"{{hosts: [web], http: [{{route: [{TO % ''}]}}]}}",
            "spec.http[0].route[0].destination.subset",
            "bad: Requests to web get 503: no subset v3 (VirtualService a/r).",
        ),
        (
            f"{{hosts: [x.example, web], http: [{{match: [{{uri: {{prefix: /a}}}}], route: [{TO % ''}]}}]}}",
            "spec.http[0].route[0].destination.subset",
            "bad: Requests to x.example, web that match spec.http[0] get 503: no subset v3 (VirtualService a/r).",
        ),
        (
            f"{{hosts: [web], http: [{{route: [{TO % ', weight: 25'}, {TO % ', weight: 75'}]}}]}}",
            "spec.http[0].route[1].destination.subset",
            "bad: 75 % of requests to web get 503: no subset v3 (VirtualService a/r).",
        ),
        (
            f"{{hosts: [web], http: [{{route: [{TO % ', weight: 100'}, {TO % ', weight: 0'}]}}]}}",
            "spec.http[0].route[1].destination.subset",
            "bad: VirtualService a/r has an error at spec.http[0].route[1].destination.subset: no subset v3.",
        ),
        (
            f"{{hosts: [web], tcp: [{{route: [{TO % ''}]}}]}}",
            "spec.tcp[0].route[0].destination.subset",
            "bad: Connections to web are closed: no subset v3 (VirtualService a/r).",
        ),
        (
            "{hosts: [web], http: [{route: [{destination: {host: web}}]}]}",
            "spec.http[0].mirrors[0].destination.subset",
            "bad: VirtualService a/r has an error at spec.http[0].mirrors[0].destination.subset: no subset v3.",
        ),
    ],
)
async def test_missing_destination_says_which_requests_fail(spec: str, path: str, expected: str) -> None:
    every = await sentences(missing(path), objects=(WEB, make("VirtualService", "r", spec, "a")))
    assert every == [expected]


async def test_effect_at_the_end_of_a_message_is_not_repeated() -> None:
    error = replace(missing(), message="no subset v3, so requests get 503")
    route = make("VirtualService", "r", f"{{hosts: [web], http: [{{route: [{TO % ''}]}}]}}", "a")
    assert await sentences(error, objects=(WEB, route)) == [
        "bad: Requests to web get 503: no subset v3 (VirtualService a/r)."
    ]


async def test_errors_that_make_requests_fail_come_before_rejections() -> None:
    client = connection("web-0.a", lds=FakeWatch(nonce_sent="n2", last_error="no", rejected_since=NOW))
    route = make("VirtualService", "r", f"{{hosts: [web], http: [{{route: [{TO % ''}]}}]}}", "a")
    first, second, third = await sentences(
        missing(), problem("c", RULE), objects=(WEB, route), clients=(client, connection("b.a", cds=FakeWatch()))
    )
    assert first.startswith("bad: Requests to web get 503")
    assert "rejects its listeners" in second or "rejects its listeners" in third


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
            "bad: web-0.a rejects its routes since 22:11 UTC (1 min): no such cluster; caused by DestinationRule a/r and 1 other object.",
        ),
        (
            shown(row("refused", causes=[]), refused=3),
            "bad: web-0.a and 2 other proxies reject their routes since 22:11 UTC (1 min): no such cluster.",
        ),
        (shown(row("stale"), stale=1), "warn: web-0.a, one of 250 proxies, is not responding since 22:12 UTC (40 s)."),
        (shown(row("stale"), stale=30), "bad: 30 of 250 proxies are not responding, the first since 22:12 UTC (40 s)."),
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


def test_certificates_in_use_and_faults() -> None:
    def certificate(name: str, days: float, *users: str) -> Plain:
        return {"name": name, "ends": NOW + days * 86400, "usedBy": users}

    certificates = [
        certificate("Secret a/x", -3, "Gateway a/g"),
        certificate("Secret a/y", 3, "Gateway a/g"),
        certificate("Secret a/z", -1),
    ]
    findings = find_all(
        shown()._replace(certificates=certificates, faults=[InjectedFault(ROUTE, "aborts every request with 500")]), NOW
    )
    assert [f"{one.level}: {text(one)}" for one in findings] == [
        "bad: The certificate of Secret a/x expired 3 days ago, so clients that verify it do not connect.",
        "warn: VirtualService a/r aborts every request with 500.",
        "warn: The certificate of Secret a/y expires in 3 days.",
    ]


async def test_faults_are_those_of_virtual_services() -> None:
    route = "{hosts: [web], http: [{fault: {abort: {httpStatus: 500, percentage: {value: 1}}}, route: [{destination: {host: web}}]}]}"
    assert await sentences(objects=(WEB, make("VirtualService", "r", route))) == [
        "warn: VirtualService a/r aborts 1 % of the requests with 500."
    ]
    tcp = service("web", "[{name: tcp, port: 80}]")
    assert not any("aborts" in one for one in await sentences(objects=(tcp, make("VirtualService", "r", route))))


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
        ': &lt;b&gt;no; caused by <a href="/debug/dashboard#/object/networking.istio.io/VirtualService/a/r">VirtualService a/r</a>.'
        in first
    )
    assert first.endswith('<a href="/debug/dashboard">Open the dashboard</a></p>')
