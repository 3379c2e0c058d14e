"""The shop on this machine: its servers, the control plane, and a stock Envoy in front. Ctrl-C ends all of it."""

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
    """Start every process; `children` has them as they come, so that a failure half-way can end them."""
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
    # Not 127.0.0.1: that is where the shop's servers are, and the control plane would take the proxy for one of them.
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
The shop is open. In another terminal:

  curl localhost:{INGRESS}/reviews                      v1 for 90 of 100 requests, v2 for 10
  curl -H 'x-tester: yes' localhost:{INGRESS}/reviews   always v2
  curl localhost:{INGRESS}/catalog                      the server fails every second time; the retries hide it
  curl -i localhost:{INGRESS}/catalog/slow              504: the timeout is 1 s
  curl -i localhost:{INGRESS}/home                      301 to /

Edit {routes} (the weights, say) and ask again: Envoy follows while it runs.

  {ctl} proxy-status
  {ctl} proxy-config routes ingress
  {ctl} explain ingress http.{INGRESS}
  http://127.0.0.1:{DEBUG}/debug                        everything the control plane knows

Logs: {logs}      Ctrl-C ends all of it.
"""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--config", type=pathlib.Path, default=HERE / "config", help="the folder of YAML that is served"
    )
    config = parser.parse_args().config.resolve()
    check_ports([*(port for _, _, port in APPS), INGRESS, XDS, DEBUG, READY, ADMIN])

    def start_shop(logs: pathlib.Path, children: Children) -> str:
        start_all(config, logs, children)
        return hints(config, logs)

    return run_until_interrupted("shop-", start_shop)


if __name__ == "__main__":
    sys.exit(main())
