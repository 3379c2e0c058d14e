"""Nonsensical queries of debug pages, which never cause a server error."""

from __future__ import annotations

import random
import urllib.parse

import pytest
from aiohttp import web
from aiohttp.test_utils import TestClient

from pilot.debug.page_routes import sections
from pilot.debug.pages.profiles import PREFIX
from pilot.settings.process import DebugSettings

PATHS = [
    *(
        page.path
        for section in sections(DebugSettings()).values()
        for page in section
        if page.path not in (PREFIX + "profile", PREFIX + "trace")
    ),
    "/",
    "/debug",
    "/metrics",
    "/version",
    "/debug/dashboard",
    "/debug/dashboard/mesh",
]
NAMES = (
    "proxyID",
    "types",
    "resource",
    "namespace",
    "kind",
    "debug",
    "pretty",
    "include_eds",
    "push",
    "sizes",
    "clear",
    "cert",
    "x" * 500,
    "",
    "[]",
    "<b>",
)
VALUES = (
    "",
    "tea-1.shop",
    "cup-1",
    "~",
    "*",
    "..",
    "/../../etc/passwd",
    "\0",
    "\n\r",
    "é\u2028😀",
    "\udcff",
    "<script>",
    "a,b,,cds",
    "eds",
    "kind:name",
    "|||",
    "outbound|80||",
    "outbound|99999999999999999999||x",
    "-1",
    "1e999",
    "NaN",
    "2",
    "%s%n{}",
    "x" * 4000,
    "kubernetes://",
    "true",
    "[",
    "(?:",
    "shop",
)


def random_query(rng: random.Random) -> str:
    pairs = [(rng.choice(NAMES), rng.choice(VALUES)) for _ in range(rng.randrange(1, 4))]
    return urllib.parse.urlencode(pairs, errors="surrogateescape")


@pytest.mark.parametrize("path", PATHS)
async def test_queries_cause_no_server_error(client: TestClient[web.Request, web.Application], path: str) -> None:
    rng = random.Random(path)
    for query in ["%", "&&=&", "a=%zz", "=" * 50, *(random_query(rng) for _ in range(40))]:
        async with client.get(f"{path}?{query}") as response:
            body = await response.read()
        assert response.status < 500, f"{path}?{query}"
        assert b"Traceback" not in body, f"{path}?{query}"
