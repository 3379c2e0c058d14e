"""What is counted when an object is wrong."""
from __future__ import annotations

from msgspec.structs import replace

from pilot.app.notices import Notices
from pilot.lib.metrics import Metrics
from pilot.model.checks.mesh import MESH, mesh_problems
from pilot.model.inputs import Mesh
from pilot.model.kind import GroupKind
from pilot.model.problem import ObjectRef, Problem, Severity
from pilot.serve.discovery import Discovery
from pilot.translate.profile import plan
from tests.support.world import World

GATEWAY = ObjectRef(GroupKind("networking.istio.io", "Gateway"), "shop", "front")
REFUSED = Problem(code="bad-port", object=GATEWAY, message="70000 is no port")


class StillClock:
    def time(self) -> float:
        return 0.0


def counted(problem: Problem) -> list[str]:
    metrics, mesh = Metrics(), Mesh()
    Notices(mesh, Discovery(mesh, metrics, plan), metrics, StillClock()).noticed(problem)  # type: ignore[arg-type]
    return [line for line in metrics.exposition().decode().splitlines() if line.startswith("pilot_total_rejected_configs{")]


def test_an_object_that_is_refused_is_counted_by_kind_and_name() -> None:
    assert counted(REFUSED) == ['pilot_total_rejected_configs{name="shop/front",type="gateway"} 1']
    assert counted(replace(REFUSED, object=GATEWAY._replace(namespace=""))) == ['pilot_total_rejected_configs{name="front",type="gateway"} 1']


def test_a_warning_refuses_nothing_and_is_not_counted() -> None:
    assert counted(replace(REFUSED, severity=Severity.WARNING)) == []


def test_a_file_that_cannot_be_read_names_no_object_and_is_not_counted() -> None:
    assert counted(replace(REFUSED, object=ObjectRef(), file="a.yaml")) == []


def test_a_provider_whose_service_is_not_there_is_counted_by_its_type() -> None:
    named = "{service: none.test, port: 1}"
    providers = f"{{name: z, zipkin: {named}}}, {{name: f, envoyFileAccessLog: {{}}}}, {{name: l, envoyHttpAls: {named}}}"
    mesh = World(f"extensionProviders: [{providers}]").mesh
    metrics = Metrics()
    notices = Notices(mesh, Discovery(mesh, metrics, plan), metrics, StillClock())  # type: ignore[arg-type]
    for problem in (*mesh_problems(mesh, MESH), replace(REFUSED, code="service-not-found", path="extensionProviders[0]")):
        notices.noticed(problem)
    found = sorted(line for line in metrics.exposition().decode().splitlines() if line.startswith("provider_lookup_cluster_failures"))
    assert found == [f'provider_lookup_cluster_failures{{type="{kind}"}} 1' for kind in ("envoyHTTPAls", "zipkin")]
