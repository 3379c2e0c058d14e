"""Run two services of the shop with sidecars on this machine, without root: mutual TLS and an authorization policy.

Ctrl-C stops it.
"""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import sys
from typing import NamedTuple

from processes import Children, check_ports, find_envoy, program, run_until_interrupted, start, wait_for
from tokens import Issuer

HERE = pathlib.Path(__file__).resolve().parent
APP, CALL, SERVED = 9103, 9211, "127.0.0.4:9303"
XDS, SECURE, DEBUG, READY = 15010, 15012, 15014, 18080
NAMESPACE = "shop"


class Sidecar(NamedTuple):
    """A service with a sidecar.

    The ports differ, because the sidecars share one machine instead of having a pod each.
    """

    name: str
    address: str
    admin: int
    status: int
    ready: int
    metrics: int


SIDECARS = (
    Sidecar("storefront", "127.0.0.3", 15100, 15120, 15121, 15190),
    Sidecar("reviews", "127.0.0.4", 15200, 15220, 15221, 15290),
)


def start_control_plane(config: pathlib.Path, logs: pathlib.Path, issuer: Issuer, children: Children) -> pathlib.Path:
    """Start the control plane and return the file of its root certificate."""
    issuer.write_keys(logs / "token-keys.json")
    addresses = {"grpcAddr": XDS, "secureGRPCAddr": SECURE, "monitoringAddr": DEBUG, "httpAddr": READY}
    flags = [part for flag, port in addresses.items() for part in (f"--{flag}", f"127.0.0.1:{port}")]
    flags += [
        "--httpsAddr",
        "",
        "--configDir",
        str(config),
        "--caDir",
        str(logs / "ca"),
        "--tokenKeys",
        str(logs / "token-keys.json"),
    ]
    children.append(start([program("pilot-discovery"), "discovery", *flags], logs / "pilot.log"))
    wait_for(f"http://127.0.0.1:{READY}/ready", "the control plane", children, logs)
    return logs / "ca" / "ca-cert.pem"


def start_sidecar(sidecar: Sidecar, root: pathlib.Path, logs: pathlib.Path, issuer: Issuer, children: Children) -> None:
    """Start an agent, which starts Envoy, in a directory with the files of a pod."""
    directory = logs / sidecar.name
    tokens = directory / "var" / "run" / "secrets" / "tokens"
    tokens.mkdir(parents=True)
    (tokens / "istio-token").write_text(issuer.issue(NAMESPACE, sidecar.name))
    config = {
        "discoveryAddress": f"127.0.0.1:{SECURE}",
        "binaryPath": find_envoy(),
        "concurrency": 1,
        "proxyAdminPort": sidecar.admin,
        "statusPort": sidecar.status,
        "interceptionMode": "NONE",
        "terminationDrainDuration": "1s",
    }
    environ = {
        "PROXY_CONFIG": json.dumps(config),
        "POD_NAME": f"{sidecar.name}-1",
        "POD_NAMESPACE": NAMESPACE,
        "SERVICE_ACCOUNT": sidecar.name,
        "INSTANCE_IP": sidecar.address,
        "ISTIO_METAJSON_LABELS": json.dumps({"app": sidecar.name}),
        "CA_ROOT_CA": str(root),
        "XDS_ROOT_CA": str(root),
        "ENVOY_STATUS_PORT": str(sidecar.ready),
        "ENVOY_PROMETHEUS_PORT": str(sidecar.metrics),
    }
    command = [program("pilot-agent"), "proxy", "sidecar"]
    children.append(start(command, logs / f"{sidecar.name}.log", {**os.environ, **environ}, directory))


def start_all(config: pathlib.Path, logs: pathlib.Path, children: Children) -> None:
    """Start all processes. Each is added to `children` immediately, so that it is stopped if a later one fails."""
    children.append(
        start([sys.executable, str(HERE / "apps" / "server.py"), "reviews", "v1", str(APP)], logs / "reviews-v1.log")
    )
    issuer = Issuer()
    root = start_control_plane(config, logs, issuer, children)
    for sidecar in SIDECARS:
        start_sidecar(sidecar, root, logs, issuer, children)
    for sidecar in SIDECARS:
        wait_for(f"http://127.0.0.1:{sidecar.ready}/healthz/ready", f"the sidecar of {sidecar.name}", children, logs)


def hints(config: pathlib.Path, logs: pathlib.Path) -> str:
    ctl, call = (
        f"{program('pilotctl')} --address :{DEBUG}",
        f"curl -i -H 'Host: reviews.shop.internal' localhost:{CALL}/reviews",
    )
    return f"""
The shop is running, and its services use mutual TLS. In another terminal:

  {call}              a request of the storefront through both sidecars
  {call} -X DELETE    403: the policy allows only GET
  curl -i {SERVED}/reviews                                               rejected, because it is plaintext

Edit {config / "policies.yaml"} and try again.

  {ctl} proxy-config secrets storefront    certificates of the storefront
  {ctl} authz check reviews --from-principal cluster.local/ns/shop/sa/storefront --method DELETE    why DELETE is denied

Logs: {logs}      Press Ctrl-C to stop.
"""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--config", type=pathlib.Path, default=HERE / "secure", help="directory of the configuration files"
    )
    config = parser.parse_args().config.resolve()
    sidecar_ports = [
        port for sidecar in SIDECARS for port in (sidecar.admin, sidecar.status, sidecar.ready, sidecar.metrics)
    ]
    check_ports([APP, CALL, XDS, SECURE, DEBUG, READY, *sidecar_ports])

    def start_shop(logs: pathlib.Path, children: Children) -> str:
        start_all(config, logs, children)
        return hints(config, logs)

    return run_until_interrupted("shop-secure-", start_shop)


if __name__ == "__main__":
    sys.exit(main())
