"""Reviews that would exhaust the control plane: each is denied alone, in a worker process."""

from __future__ import annotations

import asyncio
import base64
import json
import re
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from pilot.lib.workers.frames import JobLimits
from pilot.lib.workers.job_queue import JobSource
from pilot.lib.workers.pool import WorkerPool
from testing.hostile.product import gateway_with
from testing.kube.webhooks import InProcessJobs, WebhookClient, make_injector, pod, review, serving
from webhook.gateway.render import RenderError
from webhook.server.reviewers import PROGRAM, Reviewers

pytestmark = pytest.mark.slow

CPU, MEMORY = "it takes more than 0.2 seconds of CPU time", "it takes more than 48 MiB of memory"
LANES = (JobLimits(0.1, 48 << 20), JobLimits(0.2, 48 << 20))


@pytest_asyncio.fixture
async def pool() -> AsyncIterator[WorkerPool]:
    workers = WorkerPool(PROGRAM, LANES, longest_wait=100.0)
    try:
        yield workers
    finally:
        await workers.stop()


def annotated(name: str, value: str) -> dict[str, Any]:
    return pod(annotations={name: value})


def limited(cpu: str) -> dict[str, Any]:
    plain = pod()
    plain["spec"]["containers"][0]["resources"] = {"limits": {"cpu": cpu}}
    return plain


async def denial(client: WebhookClient, path: str, plain: Any) -> str:
    """Return the message of a denial, after a check that honest reviews are answered meanwhile."""
    hostile = asyncio.create_task(client.response(path, review(plain, uid="hostile")))
    honest = await client.response("/inject", review(pod()))
    assert honest["allowed"]
    assert b"istio-proxy" in base64.b64decode(honest["patch"])
    response = await hostile
    assert (response["uid"], response["allowed"]) == ("hostile", False)
    message: str = response["status"]["message"]
    return message


@pytest.mark.parametrize(
    ("plain", "message"),
    [
        (
            annotated("proxy.istio.io/config", f"statNameLength: 1\nproxyMetadata: {{A: &a {'t' * 20_000}, B: *a}}"),
            "aliases are not supported in this text",
        ),
        (annotated("sidecar.istio.io/proxyCPU", "1e999999999"), "the exponent of the quantity"),
        (limited("1e999999999"), "the exponent of the quantity"),
        (annotated("sidecar.istio.io/proxyMemory", "1" * 100_000), "the quantity is longer than 64 characters"),
        (annotated("inject.istio.io/templates", ",".join(["sidecar"] * 20_000)), f"the review failed: {CPU}"),
        (annotated("proxy.istio.io/config", f"proxyMetadata: {{{'A: b, ' * 40_000}}}"), f"the review failed: {CPU}"),
        ({**pod(), "spec": {"containers": [[]] * 600_000}}, f"the review failed: {MEMORY}"),
    ],
    ids=[
        "aliases of a long text",
        "huge exponent in an annotation",
        "huge exponent in a quantity",
        "long number",
        "long list of templates",
        "long YAML in an annotation",
        "empty lists",
    ],
)
async def test_hostile_pod_is_denied_alone(pool: WorkerPool, plain: dict[str, Any], message: str) -> None:
    async with serving(make_injector(), pool) as client:
        assert message in await denial(client, "/inject", plain)
        assert client.metric("sidecar_injection_failure_total 1")
        assert client.metric("sidecar_injection_requests_total 2")
        assert client.metric("sidecar_injection_success_total 2")
        reason = "cpu" if "CPU time" in message else "memory" if "MiB" in message else ""
        rejected = f'pilot_webhook_rejected_reviews{{reason="{reason}",webhook="inject"}} 1'
        assert client.metric(rejected) is bool(reason)


async def test_hostile_configuration_is_denied_alone(pool: WorkerPool) -> None:
    plain = {
        "apiVersion": "networking.istio.io/v1",
        "kind": "VirtualService",
        "metadata": {"name": "a", "namespace": "shop"},
        "spec": {"hosts": ["a.example.com"], "http": [{"match": [{"uri": {"prefix": "/"}}] * 80_000}]},
    }
    async with serving(make_injector(), pool) as client:
        assert (await denial(client, "/validate", plain)) in (
            f"the review failed: {CPU}",
            f"the review failed: {MEMORY}",
        )
        metrics = client.metrics.exposition().decode()
        assert 'reason="invalid_resource"' in metrics
        assert re.search(r'pilot_webhook_rejected_reviews{reason="(cpu|memory)",webhook="validate"} 1', metrics)


async def test_pod_with_thousands_of_labels_is_denied_before_they_are_matched(pool: WorkerPool) -> None:
    labels = {f"k{number}": "v" for number in range(10_000)}
    async with serving(make_injector(), pool) as client:
        injected = await client.response("/inject", review(pod(labels=labels)))
        assert injected["status"]["message"] == "metadata.labels: must be at most 65536 bytes"
        ignored = await client.response("/inject", review({**pod(labels=labels), "spec": {"hostNetwork": True}}))
        assert ignored["allowed"]


async def test_body_of_a_waiting_review_is_held_once() -> None:
    class Waiting(InProcessJobs):
        parts: tuple[bytes, ...] = ()

        async def run(self, caller: JobSource, *parts: bytes) -> bytes:
            self.parts = parts
            return await super().run(caller, *parts)

    jobs = Waiting()
    body = json.dumps(review(pod(annotations={"note": "x" * 1_000_000}))).encode()
    reviewers = Reviewers(make_injector(), jobs)
    for outcome in (reviewers.review_config(body, "a"), reviewers.review_pod(body, "/inject", "a")):
        await outcome
        assert any(part is body for part in jobs.parts)
        assert sum(map(len, jobs.parts)) < len(body) + 10_000


async def test_large_ordinary_objects_pass() -> None:
    workers = WorkerPool(PROGRAM)
    environment = [{"name": f"NAME_{number}", "value": "x" * 100} for number in range(500)]
    plain = pod()
    plain["spec"]["containers"] = [{"name": f"app-{number}", "image": "a", "env": environment} for number in range(15)]
    assert len(json.dumps(plain)) > 900_000
    try:
        async with serving(make_injector(), workers) as client:
            assert (await client.response("/inject", review(plain)))["allowed"]
    finally:
        await workers.stop()


@pytest.mark.parametrize(
    ("overlay", "message"),
    [
        (
            f"metadata: {{annotations: {{a: &a {'t' * 20_000}, b: *a}}}}",
            "overlay 'deployment': aliases are not supported in this text",
        ),
        (f"metadata: {{annotations: {{a: {'t' * 1_100_000}}}}}", "its objects take more than 1048576 bytes"),
        (
            f"spec: {{template: {{spec: {{containers: [{'{name: a}, ' * 100_000}]}}}}}}",
            f"the rendering of its template and overlays failed: {CPU}",
        ),
    ],
    ids=["aliases of a long text", "long text", "long YAML"],
)
async def test_hostile_overlay_fails_its_gateway_alone(pool: WorkerPool, overlay: str, message: str) -> None:
    reviewers = Reviewers(make_injector(), pool)
    hostile = asyncio.create_task(reviewers.render(gateway_with(overlay)))
    objects = await reviewers.render(gateway_with("metadata: {labels: {team: a}}"))
    assert [plain["metadata"].get("labels", {}).get("team") for plain in objects if plain["kind"] == "Deployment"] == [
        "a"
    ]
    with pytest.raises(RenderError, match=f"^{message}"):
        await hostile


async def test_log_lines_of_workers_are_written_by_the_control_plane(
    pool: WorkerPool, caplog: pytest.LogCaptureFixture
) -> None:
    async with serving(make_injector(), pool) as client:
        await client.response("/inject", review(annotated("sidecar.istio.io/inject", "maybe")))
        await client.response("/inject", review({**pod(), "spec": []}))
    assert [(record.name, record.levelname) for record in caplog.records if record.name == "pilot.webhook"][-2:] == [
        ("pilot.webhook", "WARNING"),
        ("pilot.webhook", "ERROR"),
    ]
    assert "pod injection failed: spec: expected a mapping, got a list" in caplog.text
