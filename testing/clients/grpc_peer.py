"""gRPC applications for tests. xDS is configured by environment variables, so each runs in its own process.

    python -m testing.clients.grpc_peer serve NAME=HOST:PORT…    servers without xDS that answer with their name
    python -m testing.clients.grpc_peer xds NAME=HOST:PORT…      servers that get their listeners over xDS
    python -m testing.clients.grpc_peer call                     a client that reads calls from standard input

A call is a line of JSON, {"target", "secure", "calls", "method", "headers", "timeout"}. Its answer is a line {"names":
{NAME: count}, "errors": {CODE: count}, "details", "attempts"}.
"""

from __future__ import annotations

import collections
import itertools
import json
import sys
import threading
import time
from concurrent import futures
from typing import Any

import grpc

SERVICE = "test.Echo"


class Echo(grpc.GenericRpcHandler):
    """Answers every method with the server's name.

    The header `fail` is the number of attempts per request id that fail first. The header `sleep` delays the answer by
    seconds, as long as the call is active.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._attempts: collections.Counter[str] = collections.Counter()

    def service(self, details: Any) -> Any:
        return grpc.unary_unary_rpc_method_handler(self._answer) if details.method.startswith(f"/{SERVICE}/") else None

    def _answer(self, request: bytes, context: Any) -> bytes:
        headers = dict(context.invocation_metadata())
        self._attempts[headers.get("id", "")] += 1
        end = time.monotonic() + float(headers.get("sleep", 0))
        while time.monotonic() < end and context.is_active():
            time.sleep(0.01)
        if self._attempts[headers.get("id", "")] <= int(headers.get("fail", 0)):
            context.abort(grpc.StatusCode.UNAVAILABLE, "not yet")
        context.set_trailing_metadata((("attempts", str(self._attempts[headers.get("id", "")])),))
        return self._name.encode()


def serve(listeners: list[str], xds: bool) -> None:
    servers = []
    for item in listeners:
        name, _, address = item.partition("=")
        server = grpc.server(futures.ThreadPoolExecutor(32), handlers=[Echo(name)], xds=xds)
        if xds:
            server.add_secure_port(address, grpc.xds_server_credentials(grpc.insecure_server_credentials()))
        else:
            server.add_insecure_port(address)
        server.start()
        servers.append(server)
    print("serving", flush=True)
    sys.stdin.read()
    for server in servers:
        server.stop(None)


class Caller:
    """Executes calls, over one channel per target."""

    def __init__(self) -> None:
        self._channels: dict[tuple[str, bool], grpc.Channel] = {}
        self._lock, self._ids = threading.Lock(), itertools.count()

    def call(self, request: dict[str, Any]) -> dict[str, Any]:
        names: collections.Counter[str] = collections.Counter()
        errors: collections.Counter[str] = collections.Counter()
        details: str | None = ""
        attempts = ""
        channel: Any = self._channel(request["target"], request.get("secure", False))
        method = channel.unary_unary(f"/{SERVICE}/{request.get('method', 'Say')}")
        for _ in range(request.get("calls", 1)):
            headers = tuple((request.get("headers") or {}).items())
            try:
                answer, rpc = method.with_call(
                    b"", timeout=request.get("timeout", 10), metadata=(*headers, ("id", str(next(self._ids))))
                )
                names[answer.decode()] += 1
                attempts = dict(rpc.trailing_metadata() or ()).get("attempts", "")
            except grpc.RpcError as error:
                errors[error.code().name] += 1
                details = error.details()
        return {"names": names, "errors": errors, "details": details, "attempts": attempts}

    def _channel(self, target: str, secure: bool) -> grpc.Channel:
        with self._lock:
            channel = self._channels.get((target, secure))
            if channel is None:
                credentials = grpc.xds_channel_credentials() if secure else None
                channel = (
                    grpc.secure_channel(target, credentials)
                    if credentials is not None
                    else grpc.insecure_channel(target)
                )
                self._channels[target, secure] = channel
            return channel


def main(arguments: list[str]) -> None:
    if arguments[0] == "call":
        caller = Caller()
        for line in sys.stdin:
            print(json.dumps(caller.call(json.loads(line))), flush=True)
    else:
        serve(arguments[1:], arguments[0] == "xds")


if __name__ == "__main__":
    main(sys.argv[1:])
