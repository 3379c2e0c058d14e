"""Run the shop on this machine: its servers, the control plane, and an Envoy as ingress gateway. Ctrl-C stops it."""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import sys

from processes import Children, check_ports, find_envoy, program, run_until_interrupted, start, wait_for

from pilot.agent.envoy.envoy_bootstrap import ProxyNode, build_bootstrap

HERE = pathlib.Path(__file__).resolve().parent
APPS = [("storefront", "v1", 9101), ("catalog", "v1", 9102), ("reviews", "v1", 9103), ("reviews", "v2", 9104)]
INGRESS, XDS, DEBUG, READY, ADMIN = 8000, 15010, 15014, 18080, 15000


def start_all(config: pathlib.Path, logs: pathlib.Path, children: Children) -> None:
    """Start all processes. Each is added to `children` immediately, so that it is stopped if a later one fails."""
    for name, version, port in APPS:
        children.append(
            start(
                [sys.executable, str(HERE / "apps" / "server.py"), name, version, str(port)],
                logs / f"{name}-{version}.log",
            )
        )
    addresses = {"grpcAddr": XDS, "monitoringAddr": DEBUG, "httpAddr": READY}
    flags = [part for flag, port in addresses.items() for part in (f"--{flag}", f"127.0.0.1:{port}")]
    flags += [
        "--secureGRPCAddr",
        "",
        "--httpsAddr",
        "",
        "--configDir",
        str(config),
        "--meshConfig",
        str(HERE / "mesh.yaml"),
    ]
    children.append(start([program("pilot-discovery"), "discovery", *flags], logs / "pilot.log"))
    wait_for(f"http://127.0.0.1:{READY}/ready", "the control plane", children, logs)
    # 127.0.0.1 is the address of the shop's servers, so the control plane would treat the proxy as one of them.
    node = ProxyNode(
        type="router",
        name="ingress",
        namespace="shop",
        ip="127.0.0.2",
        labels={"app": "ingress", "istio": "ingressgateway"},
    )
    bootstrap = logs / "envoy.json"
    bootstrap.write_text(json.dumps(build_bootstrap(node, f"127.0.0.1:{XDS}", f"127.0.0.1:{ADMIN}"), indent=1))
    children.append(
        start(
            [find_envoy(), "-c", str(bootstrap), "--concurrency", "1", "--disable-hot-restart", "-l", "warn"],
            logs / "envoy.log",
        )
    )
    wait_for(f"http://127.0.0.1:{INGRESS}/", "Envoy", children, logs)


def hints(config: pathlib.Path, logs: pathlib.Path) -> str:
    routes = config / "routes.yaml"
    routes = pathlib.Path(os.path.relpath(routes)) if routes.is_relative_to(pathlib.Path.cwd()) else routes
    ctl = pathlib.Path(program("pilotctl"))
    ctl = pathlib.Path(os.path.relpath(ctl)) if ctl.is_relative_to(pathlib.Path.cwd()) else ctl
    return f"""
The shop is running. In another terminal:

  curl localhost:{INGRESS}/reviews                      90% v1, 10% v2
  curl -H 'x-tester: yes' localhost:{INGRESS}/reviews   always v2
  curl localhost:{INGRESS}/catalog                      every second request fails, but is retried
  curl -i localhost:{INGRESS}/catalog/slow              504 after the timeout of 1 s
  curl -i localhost:{INGRESS}/home                      redirects to /

Edit {routes}, for example the weights, and try again. Changes take effect without a restart.

  {ctl} --address :{DEBUG} proxy-status
  {ctl} --address :{DEBUG} proxy-config routes ingress
  {ctl} --address :{DEBUG} explain ingress http.{INGRESS}
  http://127.0.0.1:{DEBUG}/debug                        debug pages of the control plane

Logs: {logs}      Press Ctrl-C to stop.
"""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--config", type=pathlib.Path, default=HERE / "config", help="directory of the configuration files"
    )
    config = parser.parse_args().config.resolve()
    check_ports([*(port for _, _, port in APPS), INGRESS, XDS, DEBUG, READY, ADMIN])

    def start_shop(logs: pathlib.Path, children: Children) -> str:
        start_all(config, logs, children)
        return hints(config, logs)

    return run_until_interrupted("shop-", start_shop)


if __name__ == "__main__":
    sys.exit(main())
