"""Probes and lifecycle hooks of containers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import aiohttp

from tests.cluster.box.container import Container

Plain = dict[str, Any]


async def run_handler(container: Container, handler: Plain, address: str, seconds: float) -> bool:
    """Run a probe's or a hook's handler, and return whether it succeeds."""
    try:
        if "exec" in handler:
            code, _ = await container.execute(handler["exec"]["command"], seconds)
            return code == 0
        if "httpGet" in handler:
            return await _get(container, handler["httpGet"], address, seconds)
        if "sleep" in handler:
            await asyncio.sleep(handler["sleep"]["seconds"])
            return True
        host = handler["tcpSocket"].get("host") or address
        async with asyncio.timeout(seconds):
            _, writer = await asyncio.open_connection(host, port_of(container.plain, handler["tcpSocket"]["port"]))
        writer.close()
    except (OSError, TimeoutError, aiohttp.ClientError):
        return False
    return True


async def _get(container: Container, request: Plain, address: str, seconds: float) -> bool:
    scheme, host = request.get("scheme", "HTTP").lower(), request.get("host") or address
    url = f"{scheme}://{host}:{port_of(container.plain, request['port'])}{request.get('path', '/')}"
    headers = {header["name"]: header["value"] for header in request.get("httpHeaders") or ()}
    async with (
        aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(seconds)) as session,
        session.get(url, headers={"User-Agent": "kube-probe/1.0", **headers}, ssl=False) as response,
    ):
        return 200 <= response.status < 400


def port_of(container: Plain, port: int | str) -> int:
    """Return the number of a port, which may be a name."""
    if isinstance(port, int) or port.isdigit():
        return int(port)
    return int(next(p["containerPort"] for p in container.get("ports") or () if p.get("name") == port))


async def probe_until_ended(
    container: Container, address: str, on_change: Callable[[], None], on_failure: Callable[[], None]
) -> None:
    """Run a container's probes until cancelled. `on_failure` is called if the container must be restarted."""
    plain = container.plain
    startup = plain.get("startupProbe")
    if startup and not await _until(container, startup, address, True):
        on_failure()
        return
    container.started = True
    container.ready = "readinessProbe" not in plain
    on_change()
    async with asyncio.TaskGroup() as tasks:
        if readiness := plain.get("readinessProbe"):
            tasks.create_task(_keep_ready(container, readiness, address, on_change))
        if liveness := plain.get("livenessProbe"):
            tasks.create_task(_restart_on_failure(container, liveness, address, on_failure))


async def _keep_ready(container: Container, probe: Plain, address: str, on_change: Callable[[], None]) -> None:
    while True:
        await _until(container, probe, address, not container.ready)
        container.ready = not container.ready
        on_change()


async def _restart_on_failure(container: Container, probe: Plain, address: str, failed: Callable[[], None]) -> None:
    await _until(container, probe, address, False)
    failed()


async def _until(container: Container, probe: Plain, address: str, expected: bool) -> bool:
    """Return once a probe gave one result often enough. A startup probe returns False after too many failures."""
    await asyncio.sleep(probe.get("initialDelaySeconds", 0) if not container.started or not container.ready else 0)
    period, failures = probe.get("periodSeconds", 10), probe.get("failureThreshold", 3)
    needed = probe.get("successThreshold", 1) if expected else failures
    count = others = 0
    while True:
        result = await run_handler(container, probe, address, probe.get("timeoutSeconds", 1))
        count = count + 1 if result is expected else 0
        others += result is not expected
        if count >= needed:
            return True
        if expected and not container.started and others >= failures:
            return False
        await asyncio.sleep(period)
