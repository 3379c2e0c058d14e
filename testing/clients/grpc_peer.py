"""gRPC applications of a test, in a process of their own: xDS is set up once in a process, by its environment.

    python -m testing.clients.grpc_peer serve NAME=HOST:PORT…    servers without xDS; each answers with its name and what it was asked with
    python -m testing.clients.grpc_peer xds NAME=HOST:PORT…      servers that take their listeners from xDS
    python -m testing.clients.grpc_peer call                     a client: a line of JSON on standard input is a number of calls, and one answers it

A call is {"target", "secure", "calls", "method", "headers", "timeout"}; its answer is {"names": {NAME: count}, "errors": {CODE: count}, "details",
"attempts"}.
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
    """Answers every method. The header `fail` counts down refusals by request id, `sleep` is in seconds, for as long as somebody waits."""

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


def serve(listening: list[str], xds: bool) -> None:
    servers = []
    for item in listening:
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
    def __init__(self) -> None:
        self._channels: dict[tuple[str, bool], grpc.Channel] = {}
        self._lock, self._ids = threading.Lock(), itertools.count()

    def call(self, said: dict[str, Any]) -> dict[str, Any]:
        names: collections.Counter[str] = collections.Counter()
        errors: collections.Counter[str] = collections.Counter()
        details: str | None = ""
        attempts = ""
        channel: Any = self._channel(said["target"], said.get("secure", False))
        method = channel.unary_unary(f"/{SERVICE}/{said.get('method', 'Say')}")
        for _ in range(said.get("calls", 1)):
            headers = tuple((said.get("headers") or {}).items())
            try:
                answer, call = method.with_call(
                    b"", timeout=said.get("timeout", 10), metadata=(*headers, ("id", str(next(self._ids))))
                )
                names[answer.decode()] += 1
                attempts = dict(call.trailing_metadata() or ()).get("attempts", "")
            except grpc.RpcError as error:
                errors[error.code().name] += 1
                details = error.details()
        return {"names": names, "errors": errors, "details": details, "attempts": attempts}

    def _channel(self, target: str, secure: bool) -> grpc.Channel:
        with self._lock:
            found = self._channels.get((target, secure))
            if found is None:
                credentials = grpc.xds_channel_credentials() if secure else None
                found = (
                    grpc.secure_channel(target, credentials)
                    if credentials is not None
                    else grpc.insecure_channel(target)
                )
                self._channels[target, secure] = found
            return found


def main(arguments: list[str]) -> None:
    if arguments[0] == "call":
        caller = Caller()
        for line in sys.stdin:
            print(json.dumps(caller.call(json.loads(line))), flush=True)
    else:
        serve(arguments[1:], arguments[0] == "xds")


if __name__ == "__main__":
    main(sys.argv[1:])
