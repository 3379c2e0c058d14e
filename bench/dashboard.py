"""Open the dashboard in Chromium, click through it, and measure the time of the first picture, an update and a change.

    python bench/dashboard.py --proxies 2000 --shots /tmp/shots

It needs `pip install playwright` and Chromium (--chromium). A control plane is started with a generated mesh, and
connected to proxies that acknowledge every response. tests/unit/debug has the tests of the dashboard's server side.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import pathlib
import subprocess
import sys
import tempfile
import time
import urllib.request
from typing import Any

import grpc
from envoy.config.core.v3 import base_pb2

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from bench.static_mesh import follow

GRPC, HTTP, MONITORING = 25410, 25480, 25414
PAGE = f"http://127.0.0.1:{MONITORING}/debug/dashboard"
OBJECT = """apiVersion: networking.istio.io/v1
kind: {kind}
metadata: {{name: {name}, namespace: {namespace}}}
spec: {spec}
---
"""


def write_mesh(folder: pathlib.Path, namespaces: int, services: int) -> None:
    for n in range(namespaces):
        texts = []
        for s in range(services):
            host = f"s{s}.ns-{n}.example"
            ports, endpoints = "[{name: http, number: 80, protocol: HTTP}]", f"[{{address: 10.1.{n}.{s}}}]"
            spec = f"{{hosts: [{host}], resolution: STATIC, ports: {ports}, endpoints: {endpoints}}}"
            texts.append(OBJECT.format(kind="ServiceEntry", name=f"s{s}", namespace=f"ns-{n}", spec=spec))
        (folder / f"ns-{n}.yaml").write_text("".join(texts))


async def run_proxy(number: int, namespaces: int) -> None:
    """Keep the stream of one proxy open, and acknowledge every response, until cancelled."""
    namespace = f"ns-{number % namespaces}"
    node = base_pb2.Node(
        id=f"sidecar~10.2.{number // 250}.{number % 250 + 1}~web-{number}.{namespace}~{namespace}.svc.cluster.local"
    )
    node.metadata.update({"NAMESPACE": namespace, "ISTIO_VERSION": "1.32.0"})
    async with grpc.aio.insecure_channel(
        f"127.0.0.1:{GRPC}", options=[("grpc.use_local_subchannel_pool", 1)]
    ) as channel:
        await follow(channel, node)


async def wait_ready(process: subprocess.Popen[bytes]) -> None:
    while process.poll() is None:
        try:
            with await asyncio.to_thread(urllib.request.urlopen, f"http://127.0.0.1:{HTTP}/ready", timeout=5):
                return
        except OSError:
            await asyncio.sleep(0.2)
    raise SystemExit("pilot-discovery has exited")


async def wait_connected(proxies: int) -> None:
    def count_clients() -> int:
        with urllib.request.urlopen(f"http://127.0.0.1:{MONITORING}/debug/connections", timeout=60) as response:
            total: int = json.load(response)["totalClients"]
            return total

    while await asyncio.to_thread(count_clients) < proxies:
        await asyncio.sleep(0.5)


async def visit(options: argparse.Namespace, folder: pathlib.Path) -> None:
    from playwright.async_api import async_playwright

    async with async_playwright() as instance:
        arguments = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--disable-sync"]
        browser = await instance.chromium.launch(executable_path=options.chromium, args=arguments)
        for width in (1280, 390):
            for scheme in ("light", "dark"):
                page = await browser.new_page(
                    viewport={"width": width, "height": 1400}, color_scheme=scheme, bypass_csp=True
                )
                page.on("pageerror", lambda error: print("script error:", error))
                await page.add_init_script(SCRIPT)
                await first_picture(page, f"{width} {scheme}", options.proxies)
                if (width, scheme) == (1280, "light"):
                    await click_through(page, folder)
                if options.shots:
                    options.shots.mkdir(parents=True, exist_ok=True)
                    await page.screenshot(path=options.shots / f"{width}-{scheme}.png", full_page=True)
                await page.close()
        await browser.close()


# Measures the time of the page's event handlers, by wrapping the functions that register them
SCRIPT = """
window.spent = [];
const timed = (name, action) => (event) => {
  const start = performance.now();
  action(event);
  window.spent.push([performance.now() - start, name]);
};
const listen = EventSource.prototype.addEventListener, frame = window.requestAnimationFrame;
EventSource.prototype.addEventListener = function (name, action) { listen.call(this, name, timed(name, action)); };
window.requestAnimationFrame = (action) => frame(timed("frame", action));
"""
WRONG = OBJECT.format(
    kind="VirtualService", name="wrong", namespace="ns-1", spec="{hosts: [s0.ns-1.example], http: [{}]}"
)
LIMIT = "{host: s0.ns-1.example, trafficPolicy: {connectionPool: {tcp: {maxConnections: 7}}}}"


async def first_picture(page: Any, name: str, proxies: int) -> None:
    started = time.monotonic()
    await page.goto(PAGE)
    await page.wait_for_selector("#picture svg")
    picture = time.monotonic() - started
    await page.wait_for_function(f"document.querySelector('#facts').textContent.includes('{proxies}proxies')")
    print(f"{name}: first picture {picture:.2f} s, all proxies {time.monotonic() - started:.2f} s")


async def click_through(page: Any, folder: pathlib.Path) -> None:
    """Search, expand, select with the keyboard and change the theme.

    Then change the mesh, and wait for the page to show it.
    """
    await page.keyboard.press("/")
    await page.keyboard.type("ns-1")
    await page.wait_for_function(
        "[...document.querySelectorAll('#proxies summary b')].every((b) => b.textContent.includes('ns-1'))"
    )
    await page.fill("#query", "")
    await page.focus("[data-place='namespace ns-1']")
    await page.keyboard.press("Enter")
    await page.wait_for_selector("[data-place='service s0.ns-1.example']")
    await page.focus("[data-place='service s0.ns-1.example']")
    await page.keyboard.press("Enter")
    await page.wait_for_selector("#detail:not([hidden]) dl")
    await page.keyboard.press("Escape")
    await page.click("#theme")
    assert await page.evaluate("document.documentElement.dataset.theme") == "dark"
    await page.click("#theme")
    session = await page.context.new_cdp_session(page)
    await session.send("Performance.enable", {"timeDomain": "threadTicks"})
    before = await cpu_of(session)
    await page.evaluate("window.spent.length = 0")
    started = time.monotonic()
    (folder / "wrong.yaml").write_text(WRONG)
    await page.wait_for_function("document.querySelector('#problems').textContent.includes('ns-1/wrong')")
    delay = time.monotonic() - started
    (folder / "limit.yaml").write_text(OBJECT.format(kind="DestinationRule", name="r", namespace="ns-1", spec=LIMIT))
    await asyncio.sleep(6)
    spent = await page.evaluate("window.spent")
    cpu_times = {name: 1000 * (spent_now - before[name]) for name, spent_now in (await cpu_of(session)).items()}
    (folder / "wrong.yaml").unlink()
    (folder / "limit.yaml").unlink()
    milliseconds, longest = (
        [duration for duration, _ in spent],
        ", ".join(f"{name} {duration:.0f}" for duration, name in sorted(spent, reverse=True)[:4]),
    )
    print(
        f"problem shown after {delay:.2f} s; script time per update: mean {sum(milliseconds) / len(spent):.1f} ms, longest {longest}"
    )
    details = ", ".join(f"{name} {milliseconds:.0f}" for name, milliseconds in cpu_times.items())
    print(f"CPU time of the page's thread for {len(spent)} updates, in ms: {details}")


async def cpu_of(session: Any) -> dict[str, float]:
    """Return the CPU-seconds of the page's thread, by purpose."""
    metrics = {metric["name"]: metric["value"] for metric in (await session.send("Performance.getMetrics"))["metrics"]}
    return {name: metrics[name] for name in ("ScriptDuration", "LayoutDuration", "RecalcStyleDuration", "TaskDuration")}


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--proxies", type=int, default=2000, help="number of proxies (default 2000)")
    parser.add_argument("--namespaces", type=int, default=20, help="number of namespaces (default 20)")
    parser.add_argument("--services", type=int, default=20, help="services per namespace (default 20)")
    parser.add_argument("--chromium", default="/usr/bin/chromium", help="path of Chromium")
    parser.add_argument("--shots", type=pathlib.Path, help="folder for screenshots")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        write_mesh(folder, options.namespaces, options.services)
        flags = {
            "configDir": name,
            "grpcAddr": f"127.0.0.1:{GRPC}",
            "httpAddr": f"127.0.0.1:{HTTP}",
            "monitoringAddr": f"127.0.0.1:{MONITORING}",
        }
        command = [
            str(pathlib.Path(sys.executable).parent / "pilot-discovery"),
            "discovery",
            "--secureGRPCAddr=",
            "--httpsAddr=",
            "--ctrlz_port=0",
        ]
        process = subprocess.Popen(
            [*command, *(f"--{flag}={value}" for flag, value in flags.items())], stdout=subprocess.DEVNULL
        )
        streams: list[asyncio.Task[None]] = []
        try:
            await wait_ready(process)
            streams = [asyncio.create_task(run_proxy(number, options.namespaces)) for number in range(options.proxies)]
            await wait_connected(options.proxies)
            await visit(options, folder)
        finally:
            for stream in streams:
                stream.cancel()
            await asyncio.gather(*streams, return_exceptions=True)
            process.terminate()
            process.wait()


if __name__ == "__main__":
    asyncio.run(main())
