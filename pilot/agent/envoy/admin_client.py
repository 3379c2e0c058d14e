"""A client of Envoy's admin API.

https://www.envoyproxy.io/docs/envoy/latest/operations/admin
"""

from __future__ import annotations

import asyncio
import http.client
import re
import urllib.parse

TIMEOUT_SECONDS = 2.0
_STAT = re.compile(r"^(\S+): (\d+)$", re.M)


class AdminError(Exception):
    """A request to the admin API failed. The message is for the log."""


class AdminClient:
    """A blocking client, to be used in threads."""

    def __init__(self, host: str, port: int) -> None:
        self.host, self.port = host, port

    def request(self, method: str, path: str, timeout: float = TIMEOUT_SECONDS) -> bytes:
        """Return the body of the response.

        Raises AdminError if Envoy does not respond in time or responds with a status other than 200.
        """
        connection = http.client.HTTPConnection(self.host, self.port, timeout=timeout)
        try:
            connection.request(method, f"/{path.removeprefix('/')}")
            response = connection.getresponse()
            body = response.read()
        except (OSError, http.client.HTTPException) as error:
            raise AdminError(f"Envoy's admin port {self.port} does not respond: {error}") from error
        finally:
            connection.close()
        if response.status != 200:
            raise AdminError(
                f"Envoy's admin port returned status {response.status} for {method} /{path}: "
                f"{body[:200].decode(errors='replace').strip()}"
            )
        return body

    def stats(self, regex: str) -> dict[str, int]:
        """Return the counters and gauges whose names match. Raises AdminError."""
        text = self.request("GET", f"stats?usedonly&filter={urllib.parse.quote(regex)}").decode(errors="replace")
        return {name: int(value) for name, value in _STAT.findall(text)}


class AsyncAdminClient:
    """An asyncio client that runs the blocking one in threads."""

    def __init__(self, client: AdminClient) -> None:
        self._client = client

    async def post(self, path: str) -> None:
        """Send a command. Raises AdminError."""
        await asyncio.to_thread(self._client.request, "POST", path)

    async def stats(self, regex: str) -> dict[str, int]:
        """Return the counters and gauges whose names match. Raises AdminError."""
        return await asyncio.to_thread(self._client.stats, regex)
