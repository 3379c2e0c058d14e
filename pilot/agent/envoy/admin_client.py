"""Envoy's admin port as the agent uses it: https://www.envoyproxy.io/docs/envoy/latest/operations/admin"""

from __future__ import annotations

import asyncio
import http.client
import re
import urllib.parse

SECONDS = 2.0
_STAT = re.compile(r"^(\S+): (\d+)$", re.M)


class AdminError(Exception):
    """Envoy does not answer, or says no; the text is for the log."""


class AdminClient:
    """Blocking calls; for threads."""

    def __init__(self, host: str, port: int) -> None:
        self.host, self.port = host, port

    def request(self, method: str, path: str, seconds: float = SECONDS) -> bytes:
        """Returns the body of the answer. AdminError where there is none within the time, or its status is not 200."""
        connection = http.client.HTTPConnection(self.host, self.port, timeout=seconds)
        try:
            connection.request(method, f"/{path.removeprefix('/')}")
            response = connection.getresponse()
            body = response.read()
        except (OSError, http.client.HTTPException) as error:
            raise AdminError(f"Envoy's admin port {self.port} does not answer: {error}") from error
        finally:
            connection.close()
        if response.status != 200:
            raise AdminError(
                f"Envoy's admin port answers {response.status} to {method} /{path}: {body[:200].decode(errors='replace').strip()}"
            )
        return body

    def stats(self, regex: str) -> dict[str, int]:
        """Returns the counters and gauges whose name matches. AdminError as `request`."""
        text = self.request("GET", f"stats?usedonly&filter={urllib.parse.quote(regex)}").decode(errors="replace")
        return {name: int(value) for name, value in _STAT.findall(text)}


class AsyncAdminClient:
    """The same for an event loop, which goes on while Envoy thinks."""

    def __init__(self, admin: AdminClient) -> None:
        self._admin = admin

    async def post(self, path: str) -> None:
        """Sends a command. AdminError as `AdminClient.request`."""
        await asyncio.to_thread(self._admin.request, "POST", path)

    async def stats(self, regex: str) -> dict[str, int]:
        """Returns statistics as `AdminClient.stats`."""
        return await asyncio.to_thread(self._admin.stats, regex)
