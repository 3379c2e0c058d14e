"""The image `echo`: answers HTTP requests with the name of its pod and the request's headers, as JSON, and logs them."""

from __future__ import annotations

import asyncio
import json
import os
import signal

from aiohttp import web


async def _answer(request: web.Request) -> web.Response:
    headers = {name.lower(): value for name, value in request.headers.items()}
    print(json.dumps({"method": request.method, "path": request.path_qs, "headers": headers}), flush=True)
    return web.json_response(
        {
            "pod": os.environ.get("HOSTNAME", ""),
            "path": request.path_qs,
            "protocol": f"HTTP/{request.version.major}.{request.version.minor}",
            "headers": headers,
        }
    )


async def _serve() -> None:
    application = web.Application()
    application.router.add_route("*", "/{path:.*}", _answer)
    runner = web.AppRunner(application, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "0.0.0.0", int(os.environ.get("PORT", "8080"))).start()
    ended = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, ended.set)
    await ended.wait()
    await asyncio.sleep(float(os.environ.get("LINGER", "0")))
    await runner.cleanup()


if __name__ == "__main__":
    print(json.dumps({"port": os.environ.get("PORT", "8080")}), flush=True)
    asyncio.run(_serve())
