"""Compare the output of an unmodified istioctl against this control plane with transcripts from another one.

    python bench/istioctl.py --istioctl PATH --recorded FOLDER --harness FOLDER [words …] [-v] [--keep FOLDER]

The folder of --recorded has a mesh in `mesh` and transcripts in `istioctl`: NAME.cmd with the arguments and the exit
status, NAME.out and NAME.err. The folder of --harness has `pages.py`, whose Session connects the mesh's proxies and
applies its steps. The API server of the tests has the mesh's objects, the objects of an installation, and a Pod for the
control plane, whose ports are forwarded. Port 15000 of a proxy answers with the control plane's configuration dump for
the proxy.

Lines are compared as sets, and whitespace is normalized. Parts marked as volatile in a transcript match anything. One
line is printed for each transcript. The exit status is 1 if one differs.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import pathlib
import re
import sys
import tempfile
import urllib.request
from typing import Any, NamedTuple

import yaml
from aiohttp import web

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from deploy.operator.inputs import user_settings  # noqa: E402
from deploy.operator.manifest import render_installation  # noqa: E402
from testing.apiserver.definitions import definitions  # noqa: E402
from testing.apiserver.server import ApiServer  # noqa: E402
from testing.apiserver.tls import make_certificate  # noqa: E402
from testing.kube.kube_access import write_kubeconfig  # noqa: E402
from testing.processes.process import Process, free_port  # noqa: E402

SYSTEM, POD = "istio-system", "istiod-0"
FLAGS = {15010: "grpcAddr", 8080: "httpAddr", 15014: "monitoringAddr", 15012: "secureGRPCAddr", 15017: "httpsAddr"}
ISTIOD = f"""
apiVersion: v1
kind: Pod
metadata:
  name: {POD}
  namespace: {SYSTEM}
  labels: {{app: istiod, istio: pilot, istio.io/rev: default}}
  annotations: {{prometheus.io/port: "15014"}}
spec: {{nodeName: pier-1, containers: [{{name: discovery, image: pilot}}]}}
status: {{phase: Running, podIP: 127.0.0.1, containerStatuses: [{{name: discovery, ready: true}}]}}
"""
INSTALLED = ("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration", "ConfigMap")
"""Kinds of an installation's objects that the recorded mesh had. It had no Services and Deployments."""
SETTINGS = ("hub=registry.example",)
ANYTHING = re.compile(r"<(?:age|time|nonce|counter|uid|number|address|go|tag|link|resourceVersion)>")
MORE = re.compile(r"<\d+ more lines>")


class Transcript(NamedTuple):
    """A command, its exit status and its output."""

    name: str
    arguments: list[str]
    status: int
    lines: list[str]


def transcripts(folder: pathlib.Path, words: list[str]) -> list[Transcript]:
    """Return the transcripts whose name contains one of the words."""
    recorded = []
    for path in sorted(folder.glob("*.cmd")):
        if words and not any(word in path.stem for word in words):
            continue
        command, status = path.read_text().splitlines()[:2]
        printed = [file.read_text() for end in (".out", ".err") if (file := path.with_suffix(end)).exists()]
        recorded.append(
            Transcript(path.stem, command.split(), int(status.rpartition(" ")[2]), _lines("\n".join(printed)))
        )
    return recorded


def _lines(text: str) -> list[str]:
    return [line for raw in text.splitlines() if (line := " ".join(raw.split()))]


def differences(expected: list[str], actual: list[str]) -> list[str]:
    """Return lines without an equal on the other side: "- " expected, "+ " actual.

    Omitted lines of a transcript match anything.
    """
    is_cut = any(MORE.fullmatch(line) for line in expected)
    unmatched, missing = list(actual), []
    for line in (line for line in expected if not MORE.fullmatch(line)):
        pattern = re.compile(".*?".join(re.escape(part) for part in ANYTHING.split(line)))
        match = next((other for other in unmatched if pattern.fullmatch(other)), None)
        unmatched.remove(match) if match is not None else missing.append(f"- {line}")
    return missing + ([] if is_cut else [f"+ {line}" for line in unmatched])


class Plane:
    """The API server, a control plane that uses it, and the addresses that stand for ports of Pods."""

    def __init__(self, work: pathlib.Path, scenario: Any) -> None:
        self.work, self.scenario = work, scenario
        certificate = make_certificate()
        self.api = ApiServer(tls=certificate.context(work))
        installed = render_installation(user_settings([], [*SETTINGS]).plain, lambda text: None).objects(())
        objects = [plain for plain in installed if plain["kind"] in INSTALLED]
        for plain in (*definitions(), *objects, *scenario.objects, yaml.safe_load(ISTIOD)):
            self.api.put(as_recorded(json.loads(json.dumps(plain, default=str))))
        self._certificate = certificate
        self.ports = {port: free_port() for port in (*FLAGS, 9876)}
        self._admins: list[web.AppRunner] = []

    async def start(self, pages: Any) -> None:
        await self.api.start()
        self.kubeconfig = write_kubeconfig(self.api, self.work / "kubeconfig", self._certificate.data)
        flags = [f"--{flag}=127.0.0.1:{self.ports[port]}" for port, flag in FLAGS.items()]
        for name, text in (("meshConfig", self.scenario.mesh_config), ("networksConfig", self.scenario.mesh_networks)):
            (self.work / name).write_text(text or "")
            flags.append(f"--{name}={self.work / name}")
        command = [
            str(pathlib.Path(sys.executable).parent / "pilot-discovery"),
            "discovery",
            f"--kubeconfig={self.kubeconfig}",
            *flags,
        ]
        environ = {**self.scenario.env, "POD_NAME": POD, "POD_NAMESPACE": SYSTEM}
        self.process = Process([*command, f"--ctrlz_port={self.ports[9876]}"], self.work / "pilot.log", environ=environ)
        while not await asyncio.to_thread(self._ready):
            self.process.check_alive()
            await asyncio.sleep(0.1)
        for port, local in self.ports.items():
            self.api.forwards.ports[SYSTEM, POD, port] = ("127.0.0.1", local)
        for proxy in self.scenario.proxies:
            name, namespace = proxy.node["id"].split("~")[2].split(".")
            self.api.forwards.ports[namespace, name, 15000] = ("127.0.0.1", await self._admin(f"{name}.{namespace}"))
        address = {"grpc": 15010, "http": 8080, "monitoring": 15014, "https": 15017}
        self.addresses = pages.Addresses(**{name: f"127.0.0.1:{self.ports[port]}" for name, port in address.items()})

    def _ready(self) -> bool:
        try:
            return urllib.request.urlopen(f"http://127.0.0.1:{self.ports[8080]}/ready", timeout=2).status == 200
        except OSError:
            return False

    def get(self, path: str) -> bytes:
        with urllib.request.urlopen(f"http://127.0.0.1:{self.ports[15014]}{path}", timeout=30) as response:
            body: bytes = response.read()
            return body

    async def apply(self, objects: list[dict[str, Any]], changes: list[dict[str, Any]], delete: bool) -> None:
        for plain in json.loads(json.dumps(changes, default=str)):
            (self.api.remove if delete else self.api.put)(plain)

    async def stop(self) -> None:
        for admin in self._admins:
            await admin.cleanup()
        if hasattr(self, "process"):
            await asyncio.to_thread(self.process.stop)
        await self.api.stop()

    async def _admin(self, proxy: str) -> int:
        """Serve the admin port of a proxy, and return the local port."""

        async def config_dump(request: web.Request) -> web.Response:
            body = await asyncio.to_thread(self.get, f"/debug/config_dump?proxyID={proxy}&include_eds")
            return web.Response(body=body, content_type="application/json")

        async def clusters(request: web.Request) -> web.Response:
            return web.json_response(
                cluster_statuses(
                    json.loads(await asyncio.to_thread(self.get, f"/debug/edsz?proxyID={proxy}"))["configs"]
                )
            )

        async def not_found(request: web.Request) -> web.Response:
            return web.Response(status=404 if request.method == "GET" else 501)

        app = web.Application()
        app.router.add_route("*", "/config_dump", config_dump)
        app.router.add_route("*", "/clusters", clusters)
        app.router.add_route("*", "/{other:.*}", not_found)
        runner = web.AppRunner(app)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        self._admins.append(runner)
        port: int = runner.addresses[0][1]
        return port


def as_recorded(plain: dict[str, Any]) -> dict[str, Any]:
    """Return an object as it was when the transcripts were recorded: webhooks by URL, and the recorded Gateway API
    version.
    """
    if plain["kind"].endswith("WebhookConfiguration"):
        for webhook in plain["webhooks"]:
            webhook["clientConfig"].pop("service", None)
            webhook["clientConfig"]["url"] = "https://127.0.0.1:1/inject"
    if plain["kind"] == "CustomResourceDefinition":
        plain["metadata"]["annotations"] = {"gateway.networking.k8s.io/bundle-version": "v1.6.0"}
    return plain


def cluster_statuses(assignments: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the response of Envoy's admin port for clusters with these endpoints, all healthy."""
    statuses = []
    for assignment in assignments:
        hosts = [
            {"address": endpoint["endpoint"]["address"], "healthStatus": {"edsHealthStatus": "HEALTHY"}}
            for group in assignment.get("endpoints", ())
            for endpoint in group.get("lbEndpoints", ())
        ]
        statuses.append({"name": assignment["clusterName"], "addedViaApi": True, "hostStatuses": hosts})
    return {"clusterStatuses": statuses}


def make_files(plane: Plane, folder: pathlib.Path) -> None:
    """Write the files that commands refer to: configuration dumps of proxies, and objects of the mesh."""
    for proxy in ("booking-0.tickets", "timetable-v1-0.harbor"):
        dump = plane.get(f"/debug/config_dump?proxyID={proxy}&include_eds")
        (folder / f"{proxy.partition('.')[0]}-config-dump.json").write_bytes(dump)
    (folder / "config.yaml").write_text((plane.scenario.path / "config.yaml").read_text())
    for plain in plane.scenario.objects:
        if plain["kind"] == "VirtualService" and plain["metadata"]["name"] in ("nowhere", "timetable"):
            (folder / f"{plain['metadata']['name']}.yaml").write_text(
                yaml.safe_dump(json.loads(json.dumps(plain, default=str)))
            )


async def run(command: list[str], environ: dict[str, str], folder: pathlib.Path) -> tuple[int, str]:
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(
        *command, env={**os.environ, **environ}, cwd=folder, stdout=pipe, stderr=pipe
    )
    try:
        async with asyncio.timeout(60):
            out, err = await process.communicate()
    except TimeoutError:
        process.kill()
        return -1, "timed out after a minute"
    return process.returncode or 0, out.decode() + "\n" + err.decode()


async def compare(plane: Plane, options: argparse.Namespace) -> int:
    folder = plane.work / "files"
    folder.mkdir()
    make_files(plane, folder)
    secure = f"127.0.0.1:{plane.ports[15012]}"
    failures = 0
    for transcript in transcripts(options.recorded / "istioctl", options.words):
        arguments = [
            word.replace("ISTIOD:15012", secure).replace("ISTIOD:15010", plane.addresses.grpc)
            for word in transcript.arguments
        ]
        environ = {"KUBECONFIG": str(plane.kubeconfig), "HOME": str(folder), "NO_COLOR": "1"}
        status, output = await run([str(options.istioctl), *arguments], environ, folder)
        if options.keep:
            (options.keep / f"{transcript.name}.txt").write_text(output)
        lines = differences(transcript.lines, _lines(re.sub(r"\x1b\[[0-9;]*m", "", output)))
        lines += [f"exit status {status}, not {transcript.status}"] if status != transcript.status else []
        failures += bool(lines)
        print(
            f"{'differs' if lines else 'equal':8} {transcript.name:40} {len(transcript.lines):4} lines, {len(lines)} differ",
            flush=True,
        )
        for line in lines if options.verbose else ():
            print(f"         {line}", flush=True)
    return failures


async def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("words", nargs="*", help="parts of transcript names")
    parser.add_argument("--istioctl", type=pathlib.Path, required=True, help="path of istioctl")
    parser.add_argument("--recorded", type=pathlib.Path, required=True, help="folder of the mesh and the transcripts")
    parser.add_argument("--harness", type=pathlib.Path, required=True, help="folder of pages.py")
    parser.add_argument("--keep", type=pathlib.Path, help="folder for the actual output")
    parser.add_argument("--hold", action="store_true", help="keep running after the comparison, until a signal")
    parser.add_argument("-v", "--verbose", action="store_true", help="print the differences")
    options = parser.parse_args()
    for name in ("istioctl", "recorded", "harness"):
        setattr(options, name, getattr(options, name).resolve())
    if options.keep:
        options.keep.mkdir(parents=True, exist_ok=True)
    sys.path.insert(0, str(options.harness))
    import pages

    with tempfile.TemporaryDirectory() as work:
        plane = Plane(pathlib.Path(work), pages.scenarios.load(options.recorded / "mesh"))
        try:
            await plane.start(pages)
            async with pages.Session(plane.scenario, plane.addresses, plane.apply, 0.5, 20):
                await asyncio.sleep(11)  # some pages are refreshed every ten seconds
                failures = await compare(plane, options)
                if options.hold:
                    print(f"KUBECONFIG={plane.kubeconfig}", plane.ports, flush=True)
                    await asyncio.Event().wait()
        finally:
            await plane.stop()
            if options.keep and (log := pathlib.Path(work) / "pilot.log").exists():
                (options.keep / "pilot.log").write_bytes(log.read_bytes())
    print(f"{failures} transcripts differ")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
