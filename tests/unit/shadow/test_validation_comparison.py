"""Objects of a mesh, as the webhook of another control plane reviews them, beside the problems that they have here."""

from __future__ import annotations

import pathlib

import yaml

from pilot.config.group_kind import GroupKind
from pilot.config.problem import ObjectRef, Problem, Severity
from pilot.shadow.reference_server import ReferenceServer
from pilot.shadow.validation_comparison import ValidationReport, compare_validation
from testing.control_planes.secure_plane import running

OBJECTS = list(
    yaml.safe_load_all("""
apiVersion: v1
kind: Service
metadata: {name: web, namespace: shop}
spec: {}
---
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: valid, namespace: shop}
spec: {hosts: [web], http: [{route: [{destination: {host: web}}]}]}
---
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: invalid, namespace: shop}
spec: {hosts: [web], http: [{retries: {attempts: -1}, route: [{destination: {host: web}}]}]}
""")
)


def problem(name: str) -> Problem:
    ref = ObjectRef(GroupKind("networking.istio.io", "VirtualService"), "shop", name)
    return Problem(code="x", severity=Severity.ERROR, object=ref, path="spec.hosts", message="is wrong")


async def compare(folder: pathlib.Path, *problems: Problem) -> ValidationReport:
    async with running(folder) as env:
        address = f"127.0.0.1:{env.plane.ports['webhooks'].number}"
        return await compare_validation(
            ReferenceServer(address, env.root, "istiod.istio-system.svc"), OBJECTS, problems
        )


async def test_objects_that_both_refuse_are_no_difference(tmp_path: pathlib.Path) -> None:
    assert await compare(tmp_path, problem("invalid")) == ValidationReport(2, [], "")


async def test_objects_that_one_side_refuses_are_found_in_both_directions(tmp_path: pathlib.Path) -> None:
    report = await compare(tmp_path, problem("valid"))
    here, there = report.differences
    assert here == ("networking.istio.io/VirtualService shop/valid", "accepts", "spec.hosts: is wrong")
    assert (there.object, there.pyistiod) == ("networking.istio.io/VirtualService shop/invalid", "accepts")
    assert "attempts" in there.reference


async def test_a_webhook_that_does_not_answer_is_the_reason(tmp_path: pathlib.Path) -> None:
    async with running(tmp_path) as env:
        root = env.root
    report = await compare_validation(ReferenceServer("127.0.0.1:1", root, "istiod.istio-system.svc"), OBJECTS, ())
    assert report.objects == 0
    assert "127.0.0.1:1 does not answer" in report.skipped
