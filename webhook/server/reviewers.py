"""Answers admission reviews and renders Gateways in worker processes."""

from __future__ import annotations

import logging
import pickle
from typing import Any, Protocol

import msgspec

from pilot.config.mesh.mesh_config import MeshConfig
from pilot.lib.logging.log import ROOT, scope
from pilot.lib.workers.job_queue import JobSource
from pilot.lib.workers.pool import JobError, JobRunner
from webhook.gateway.render import GatewayToRender, RenderError
from webhook.inject.injection import CLUSTER_VARIABLE
from webhook.server.injector import InjectionContext, Injector
from webhook.server.outcome import Outcome
from webhook.server.path import environment_of
from webhook.server.pod_review import PodFacts
from webhook.server.program import ConfigReview, Job, PodReview, State, validation_of
from webhook.server.review import (
    AdmissionResponse,
    AdmissionReview,
    PodHead,
    ReviewError,
    decode_pod_head,
    decode_review,
    encode_answer,
)

PROGRAM = "webhook.server.program"
DEFAULT_CLUSTER = "Kubernetes"
_log = scope("webhook")
_decoder = msgspec.msgpack.Decoder(Outcome)


class Jobs(JobRunner, Protocol):
    """Runs jobs that share a state. A WorkerPool implements this protocol."""

    def load(self, state: bytes) -> None:
        """Replace the state for all later jobs."""


class Reviewers:
    """Answers admission reviews and renders Gateways in worker processes, with the current configuration."""

    def __init__(self, injector: Injector | None, jobs: Jobs) -> None:
        self._injector, self._jobs = injector, jobs
        self._texts: tuple[str, str] | None = None
        self._mesh: MeshConfig | None = None

    async def review_pod(self, body: bytes, path: str, address: str) -> Outcome:
        """Return the outcome of the admission review of a Pod. The injector must have a configuration."""
        assert self._injector is not None
        review = _head(body)
        facts = await pod_facts(self._injector, review, path) if review is not None else PodFacts()
        try:
            return await self._run(JobSource(address, _namespace(review)), PodReview(path, facts), body)
        except JobError as error:
            _log.error("pod injection failed: the review failed: %s", error)
            return Outcome(_denial(review, error), injection="failed", exceeded=error.reason)

    async def review_config(self, body: bytes, address: str) -> Outcome:
        """Return the outcome of the admission review of a configuration object."""
        review = _head(body)
        try:
            return await self._run(JobSource(address, _namespace(review)), ConfigReview(), body)
        except JobError as error:
            _log.error("validation failed: the review failed: %s", error)
            validation = validation_of(review, "invalid_resource")
            return Outcome(_denial(review, error), validation=validation, exceeded=error.reason)

    async def render(self, gateway: GatewayToRender) -> list[dict[str, Any]]:
        """Return the objects of a Gateway. Raise RenderError if it cannot be deployed."""
        try:
            outcome = await self._run(JobSource("", gateway.metadata["namespace"]), gateway)
        except JobError as error:
            raise RenderError(f"the rendering of its template and overlays failed: {error}") from error
        if outcome.error:
            raise RenderError(outcome.error)
        objects: list[dict[str, Any]] = msgspec.json.decode(outcome.body)
        return objects

    async def _run(self, caller: JobSource, job: Job, body: bytes = b"") -> Outcome:
        """Return the outcome of a job, and write its log lines. `body` is the AdmissionReview."""
        if self._injector is not None and self._injector.config is not None:
            self._load(self._injector, self._injector.context)
        outcome = _decoder.decode(await self._jobs.run(caller, pickle.dumps(job, pickle.HIGHEST_PROTOCOL), body))
        for line in outcome.lines:
            if line.scope.partition(".")[0] == ROOT:
                logging.getLogger(line.scope).log(line.level, line.text)
        return outcome

    def _load(self, injector: Injector, context: InjectionContext) -> None:
        """Send the configuration to the workers if it changed."""
        mesh = context.mesh()
        if injector.texts is self._texts and (mesh is self._mesh or mesh == self._mesh):
            return
        self._texts, self._mesh = injector.texts, mesh
        state = State(self._texts, mesh, context.resets_users, context.revision, context.compliance_policy)
        self._jobs.load(pickle.dumps(state, pickle.HIGHEST_PROTOCOL))


async def pod_facts(injector: Injector, review: AdmissionReview, path: str) -> PodFacts:
    """Return the facts for the Pod in an admission review. If the Pod is invalid, return the defaults, because it is
    rejected."""
    context = injector.context
    assert review.request is not None
    try:
        pod: PodHead = decode_pod_head(review.request.object)
    except ReviewError:
        return PodFacts()
    namespace = pod.namespace or review.request.namespace
    value = injector.config.value("global", "multiCluster", "clusterName") if injector.config is not None else None
    cluster = environment_of(path).get(CLUSTER_VARIABLE) or value or DEFAULT_CLUSTER
    return PodFacts(
        context.native(cluster, pod.node),
        await context.proxy_configs(namespace, pod.labels),
        *context.proxy_ids(namespace),
    )


def _head(body: bytes) -> AdmissionReview | None:
    """Decode an AdmissionReview without decoding the object in it. Return None if the AdmissionReview is invalid."""
    try:
        return decode_review(body)
    except ReviewError:
        return None


def _namespace(review: AdmissionReview | None) -> str:
    return review.request.namespace if review is not None and review.request is not None else ""


def _denial(review: AdmissionReview | None, error: JobError) -> bytes:
    return encode_answer(review, AdmissionResponse(False, f"the review failed: {error}"))
