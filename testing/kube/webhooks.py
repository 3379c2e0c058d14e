"""AdmissionReviews as an API server sends them, and an application with both webhooks."""

from __future__ import annotations

import base64
import contextlib
import json
from collections.abc import AsyncIterator
from typing import Any

import msgspec
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer

from pilot.config.mesh.mesh_config import MeshConfig
from pilot.lib.metrics.metrics import Metrics
from pilot.lib.workers.job_queue import JobSource
from webhook.defaults.injector_config import default_values, written_of
from webhook.pod.json_patch import apply
from webhook.server.application import Webhooks
from webhook.server.injector import InjectionContext, Injector
from webhook.server.program import ReviewProgram
from webhook.server.reviewers import Jobs, Reviewers

Plain = dict[str, Any]


def pod(**metadata: Any) -> Plain:
    """Return a Pod."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "tickets", "namespace": "shop", **metadata},
        "spec": {
            "containers": [
                {"name": "app", "image": "registry.example/app:1", "ports": [{"containerPort": 80, "name": "http"}]}
            ]
        },
    }


def review(content: Any, version: str = "v1", operation: str = "CREATE", **request: Any) -> Plain:
    """Return an AdmissionReview."""
    body = {"uid": "the-uid", "operation": operation, "namespace": "shop", "object": content, **request}
    return {"kind": "AdmissionReview", "apiVersion": f"admission.k8s.io/{version}", "request": body}


def config_texts(**values: Any) -> tuple[str, str]:
    """Return the keys `config` and `values` of the default profile, overridden by values."""
    merged = default_values(values)
    return msgspec.json.encode(written_of(merged)).decode(), json.dumps(merged)


def make_injector(context: InjectionContext | None = None, **values: Any) -> Injector:
    injector = Injector(context or InjectionContext(MeshConfig))
    assert injector.load(*config_texts(**values))
    return injector


class InProcessJobs:
    """Runs the jobs of worker processes in this process, without limits."""

    def __init__(self) -> None:
        self._program = ReviewProgram(collects_logs=False)

    def load(self, state: bytes) -> None:
        self._program.load(state)

    async def run(self, caller: JobSource, *parts: bytes) -> bytes:
        return self._program.run(b"".join(parts))


class WebhookClient:
    """A client of an application with both webhooks."""

    def __init__(self, client: TestClient[Any, Any], metrics: Metrics) -> None:
        self.client, self.metrics = client, metrics

    async def send(self, path: str, body: Any, content_type: str = "application/json") -> tuple[int, bytes]:
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        async with self.client.post(path, data=data, headers={"Content-Type": content_type}) as response:
            return response.status, await response.read()

    async def response(self, path: str, body: Any) -> Plain:
        status, answer = await self.send(path, body)
        assert status == 200, answer
        content: Plain = json.loads(answer)["response"]
        return content

    async def inject(self, plain: Plain, path: str = "/inject") -> Plain:
        response = await self.response(path, review(plain))
        assert response["allowed"], response
        return apply(plain, json.loads(base64.b64decode(response["patch"])))

    def metric(self, line: str) -> bool:
        return line in self.metrics.exposition().decode().splitlines()


@contextlib.asynccontextmanager
async def serving(injector: Injector | None, jobs: Jobs | None = None) -> AsyncIterator[WebhookClient]:
    app, metrics = web.Application(), Metrics()
    Webhooks(injector, Reviewers(injector, jobs or InProcessJobs()), metrics).add_to(app)
    async with TestClient(TestServer(app)) as client:
        yield WebhookClient(client, metrics)
