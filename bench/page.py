"""Open the dashboard in Chromium, and measure its first picture, its longest frame, and what it costs the server.

    python bench/page.py --proxies 2000 --shots /tmp/shots --axe axe.min.js

It needs `pip install playwright` and Chromium (--chromium). A control plane is started with a generated mesh, and
connected to proxies that acknowledge every response. Frames are measured as CPU time of the page's main thread while
objects change and a reader opens namespaces, services and lists. With --axe, each view is checked for accessibility.
tests/unit/debug has the tests of the dashboard's server side, and tests/e2e/test_dashboard.py those of the page.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from typing import Any

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from bench.page_mesh import Place, canary, write, write_mesh

GRPC, HTTP, MONITORING = 25410, 25480, 25414
PAGE = f"http://127.0.0.1:{MONITORING}/debug/dashboard"
TICKS = os.sysconf("SC_CLK_TCK")
BOXES = ".boxes .box"


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


def cpu_seconds(process: subprocess.Popen[bytes]) -> float:
    fields = pathlib.Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


async def server_share(process: subprocess.Popen[bytes], seconds: float) -> float:
    """Return the share of a core that the server uses, in percent."""
    before, started = cpu_seconds(process), time.monotonic()
    await asyncio.sleep(seconds)
    return 100 * (cpu_seconds(process) - before) / (time.monotonic() - started)


async def first_pictures(browser: Any, count: int) -> list[float]:
    """Return the seconds until the graph was drawn, each in a page with an empty cache."""
    times = []
    for _ in range(count):
        page = await browser.new_page(viewport={"width": 1400, "height": 900})
        started = time.monotonic()
        await page.goto(PAGE, wait_until="commit")
        await page.wait_for_selector(BOXES)
        times.append(time.monotonic() - started)
        await page.close()
    return times


async def frames(browser: Any, folder: pathlib.Path, mesh: list[Place], changes: int) -> list[tuple[float, str]]:
    """Return the CPU times of the main thread's tasks in milliseconds, longest first, with what ran in them.

    Meanwhile, a reader opens views and objects change.
    """
    page = await browser.new_page(viewport={"width": 1400, "height": 900})
    await page.goto(PAGE)
    await page.wait_for_selector(BOXES)
    await asyncio.sleep(2)
    session = await page.context.new_cdp_session(page)
    events: list[dict[str, Any]] = []
    session.on("Tracing.dataCollected", lambda data: events.extend(data["value"]))
    finished = asyncio.Event()
    session.on("Tracing.tracingComplete", lambda _: finished.set())
    await session.send("Tracing.start", {"categories": "toplevel,devtools.timeline", "transferMode": "ReportEvents"})
    views = [
        f"#/namespace/{mesh[0].namespace}",
        f"#/service/{mesh[1].namespace}/{mesh[1].host}",
        "#/proxies",
        "#/changes",
    ]
    for number in range(changes):
        write(folder / "routes.yaml", canary(mesh[0].namespace, mesh[number % 20].name, "v2"))
        await page.evaluate(f"location.hash = {json.dumps((['#/', *views])[number % 5])}")
        await asyncio.sleep(1.5)
    await session.send("Tracing.end")
    await finished.wait()
    await page.close()
    return longest_tasks(events)


def longest_tasks(events: list[dict[str, Any]]) -> list[tuple[float, str]]:
    """Return the CPU times of the tasks on the main threads of pages, longest first, with the parts of each."""
    main = {
        (e["pid"], e["tid"]) for e in events if e["name"] == "thread_name" and e["args"].get("name") == "CrRendererMain"
    }
    mine = [e for e in events if (e["pid"], e["tid"]) in main and "tdur" in e]
    tasks = sorted((e for e in mine if e["name"].endswith("RunTask")), key=lambda e: -e["tdur"])
    result = []
    for task in tasks[:200]:
        inside = [
            e for e in mine if e is not task and task["ts"] <= e["ts"] < task["ts"] + task["dur"] and e["tdur"] > 1000
        ]
        parts = ", ".join(f"{e['name']} {e['tdur'] / 1000:.1f}" for e in sorted(inside, key=lambda e: -e["tdur"])[:4])
        result.append((task["tdur"] / 1000, parts))
    return result


async def check_axe(browser: Any, script: pathlib.Path, views: list[str]) -> None:
    """Print the accessibility violations that axe finds in each view, at two widths and in two colour schemes."""
    for width, scheme in ((1400, "light"), (1400, "dark"), (390, "light")):
        page = await browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme, bypass_csp=True)
        for view in views:
            await page.goto(f"{PAGE}{view}")
            await page.wait_for_selector("#tiles a")
            await asyncio.sleep(1)
            await page.add_script_tag(path=script)
            violations = (await page.evaluate("axe.run()"))["violations"]
            texts = [f"{v['impact']} {v['id']} ({len(v['nodes'])}): {v['nodes'][0]['html'][:90]}" for v in violations]
            print(f"axe {width} {scheme} {view or '#/'}: {'; '.join(texts) or 'no violation'}")
            await page.goto("about:blank")
        await page.close()


async def visit(options: argparse.Namespace, process: subprocess.Popen[bytes], mesh: list[Place]) -> None:
    from playwright.async_api import async_playwright

    folder = pathlib.Path(options.folder)
    async with async_playwright() as instance:
        arguments = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--disable-sync"]
        browser = await instance.chromium.launch(executable_path=options.chromium, args=arguments)
        views = ["", f"#/namespace/{mesh[0].namespace}", f"#/service/{mesh[1].namespace}/{mesh[1].host}", "#/proxies"]
        views += ["#/problems", "#/changes", "#/certificates", "#/load"]
        idle = await server_share(process, options.seconds)
        times = await first_pictures(browser, 5)
        print(f"first picture: median {statistics.median(times):.2f} s, longest {max(times):.2f} s")
        pages = [await browser.new_page() for _ in range(options.pages)]
        for page in pages:
            await page.goto(PAGE)
            await page.wait_for_selector(BOXES)
        await asyncio.sleep(3)
        share = await server_share(process, options.seconds)
        print(f"server: {idle:.2f} % of a core without pages, {share:.2f} % with {options.pages}", end="")
        print(f": {(share - idle) / options.pages:.2f} % per page")
        for page in pages:
            await page.close()
        tasks = await frames(browser, folder, mesh, options.changes)
        print(f"longest frames in ms: {', '.join(f'{ms:.1f}' for ms, _ in tasks[:8])}")
        print("\n".join(f"  {ms:.1f} ms: {parts}" for ms, parts in tasks[:4]))
        if options.axe:
            await check_axe(browser, options.axe, views)
        if options.shots:
            options.shots.mkdir(parents=True, exist_ok=True)
            for width, scheme in ((1400, "light"), (1400, "dark"), (390, "light")):
                page = await browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)
                await page.goto(PAGE)
                await page.wait_for_selector(BOXES)
                await page.screenshot(path=options.shots / f"{width}-{scheme}.png")
                await page.close()
        await browser.close()


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--proxies", type=int, default=2000, help="number of proxies (default 2000)")
    parser.add_argument("--services", type=int, default=501, help="number of services (default 501)")
    parser.add_argument("--pages", type=int, default=4, help="number of open pages for the server's cost (default 4)")
    parser.add_argument("--seconds", type=float, default=20, help="seconds for which the server's CPU is measured")
    parser.add_argument("--changes", type=int, default=20, help="number of changes while frames are measured")
    parser.add_argument("--chromium", default="/usr/bin/chromium", help="path of Chromium")
    parser.add_argument("--axe", type=pathlib.Path, help="path of axe.min.js")
    parser.add_argument("--shots", type=pathlib.Path, help="folder for screenshots")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        options.folder = name
        mesh = write_mesh(pathlib.Path(name), options.services)
        flags = {
            "configDir": name,
            "grpcAddr": f"127.0.0.1:{GRPC}",
            "httpAddr": f"127.0.0.1:{HTTP}",
            "monitoringAddr": f"127.0.0.1:{MONITORING}",
            "secureGRPCAddr": "",
            "httpsAddr": "",
            "ctrlz_port": "0",
        }
        binary = str(pathlib.Path(sys.executable).parent / "pilot-discovery")
        process = subprocess.Popen(
            [binary, "discovery", *(f"--{flag}={value}" for flag, value in flags.items())], stdout=subprocess.DEVNULL
        )
        clients: subprocess.Popen[bytes] | None = None
        try:
            await wait_ready(process)
            script = pathlib.Path(__file__).with_name("page_mesh.py")
            numbers = [f"--services={options.services}", f"--proxies={options.proxies}"]
            command = [sys.executable, str(script), name, "--keep", *numbers, f"--address=127.0.0.1:{GRPC}"]
            clients = subprocess.Popen(command)
            await wait_connected(options.proxies)
            await asyncio.sleep(10)
            await visit(options, process, mesh)
        finally:
            for child in (clients, process):
                if child is not None:
                    child.terminate()
                    child.wait()


if __name__ == "__main__":
    asyncio.run(main())
