"""Stock Envoys at the TLS port: authentication, and a new intermediate without reconnects."""

from __future__ import annotations

import datetime
import pathlib
from collections.abc import Iterator

import pytest

from ca.csr import decode_csr
from ca.pem import bundle_pem, certificate_pem, key_pem
from ca.signer import Signer
from pilot.agent.envoy.envoy_bootstrap import ProxyNode
from testing.processes.process import ControlPlane, Envoy, XdsCredentials, eventually
from testing.security.certificates import DAY, csr, ec_key, intermediate, root, write_plugged_in

NOW = datetime.datetime.now(datetime.UTC)
ROOT = root(30, now=NOW)
FIRST, SECOND = (intermediate(ROOT, number, lifetime=400 * DAY) for number in (31, 32))
FOREIGN = root(33, now=NOW)
WEB = "spiffe://cluster.local/ns/shop/sa/web"
SERVICE = """
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {{name: {0}, namespace: shop}}
spec: {{hosts: [{0}.example.com], ports: [{{number: 80, name: http, protocol: HTTP}}], resolution: NONE}}
"""


class Mesh:
    """A control plane with a plugged-in signing certificate, and Envoys with client certificates."""

    def __init__(self, work: pathlib.Path) -> None:
        self.work, self.config, self.cacerts = work, work / "config", work / "etc" / "cacerts"
        self.config.mkdir()
        self.cacerts.mkdir(parents=True)
        write_plugged_in(self.cacerts, FIRST)
        self.write("one")
        self.pilot = ControlPlane(work, self.config, environ={"ROOT_CA_DIR": str(self.cacerts)})
        self.pilot.wait_ready()
        self.envoys: list[Envoy] = []

    def write(self, name: str) -> None:
        (self.config / f"{name}.yaml").write_text(SERVICE.format(name))

    def envoy(self, name: str, signer: Signer, identity: str = WEB) -> Envoy:
        folder = self.work / name
        folder.mkdir()
        leaf = signer.issue(decode_csr(csr(ec_key(51))), (identity,), DAY, datetime.datetime.now(datetime.UTC))
        proof = XdsCredentials.write(
            folder, certificate_pem(leaf) + bundle_pem(signer.intermediates), key_pem(ec_key(51)), ROOT.roots_pem
        )
        node = ProxyNode(type="sidecar", name=name, namespace="shop", ip="127.0.0.2", service_account="web")
        self.envoys.append(Envoy(folder, node, self.pilot.secure_xds, credentials=proof))
        return self.envoys[-1]

    def stop(self) -> None:
        for envoy in self.envoys:
            envoy.stop()
        self.pilot.stop()


@pytest.fixture
def mesh(tmp_path: pathlib.Path) -> Iterator[Mesh]:
    env = Mesh(tmp_path)
    try:
        yield env
    finally:
        env.stop()


def has(envoy: Envoy, name: str) -> bool:
    return f"outbound|80||{name}.example.com" in envoy.get("/clusters")


def test_envoy_is_served_only_with_its_certificate(mesh: Mesh) -> None:
    trusted = mesh.envoy("web-1", FIRST)
    foreign = mesh.envoy("web-2", FOREIGN)
    other = mesh.envoy("web-3", FIRST, "spiffe://cluster.local/ns/bank/sa/web")
    eventually(lambda: has(trusted, "one"), 30, "the proxy has its clusters")
    for reason in ("TLS handshake with", "spiffe://cluster.local/ns/bank/sa/web does not match"):
        eventually(lambda: reason in mesh.pilot.log.read_text(), 30, f"the log says {reason}")  # noqa: B023
    for rejected in (foreign, other):
        assert not has(rejected, "one")
    assert mesh.pilot.metric("pilot_xds") == 1


def test_new_intermediate_keeps_connections(mesh: Mesh) -> None:
    old_envoy = mesh.envoy("web-1", FIRST)
    eventually(lambda: has(old_envoy, "one"), 30, "the proxy has its clusters")
    write_plugged_in(mesh.cacerts, SECOND)
    eventually(
        lambda: "loaded the signing certificate" in mesh.pilot.log.read_text(), 30, "the second intermediate is loaded"
    )
    new_envoy = mesh.envoy("web-2", SECOND)
    eventually(lambda: has(new_envoy, "one"), 30, "a proxy of the second intermediate has its clusters")
    mesh.write("two")
    for envoy in (old_envoy, new_envoy):
        eventually(lambda: has(envoy, "two"), 30, "both receive a change")  # noqa: B023
        assert envoy.stats("cluster.xds-grpc.upstream_cx_total")["cluster.xds-grpc.upstream_cx_total"] == 1
        assert envoy.rejected() == {}
