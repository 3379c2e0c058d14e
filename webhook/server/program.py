"""The program that worker processes run to answer admission reviews and render Gateways."""

from __future__ import annotations

import io
import logging
import pickle
from typing import NamedTuple

import msgspec

from pilot.config.catalogue import CATALOGUE
from pilot.config.mesh.mesh_config import MeshConfig
from pilot.lib.logging.log import scope
from webhook.gateway.render import GatewayToRender, RenderError, render_gateway
from webhook.inject.config import decode_config
from webhook.server.outcome import LogBuffer, Outcome, Validation
from webhook.server.pod_review import REFUSALS, InjectionSettings, PodFacts, answer_pod
from webhook.server.review import AdmissionResponse, AdmissionReview, ReviewError, decode_review, encode_answer
from webhook.server.validator import Verdict, validate

LARGEST_RENDERING = 1 << 20
"""Maximum size in bytes of the objects of a Gateway, encoded as JSON. API servers accept little more for one object."""
_log = scope("webhook")


class State(NamedTuple):
    """The state of a worker. `texts` contains the values of the ConfigMap keys `config` and `values`."""

    texts: tuple[str, str]
    mesh: MeshConfig
    resets_users: bool
    revision: str
    compliance_policy: str


class PodReview(NamedTuple):
    """A job that answers the admission review of a Pod. `path` is the path of the HTTP request."""

    path: str
    facts: PodFacts


class ConfigReview(NamedTuple):
    """A job that answers the admission review of a configuration object."""


Job = PodReview | ConfigReview | GatewayToRender


class ReviewProgram:
    """Runs jobs. If `collects_logs` is set, log lines are not written, but are part of the outcome."""

    def __init__(self, collects_logs: bool = True) -> None:
        self._settings: InjectionSettings | None = None
        self._lines = LogBuffer()
        if collects_logs:
            root = scope("default")
            root.setLevel(logging.INFO)
            root.propagate, root.handlers[:] = False, [self._lines]

    def load(self, state: bytes) -> None:
        """Replace the injection settings with the settings in a pickled State."""
        loaded: State = pickle.loads(state)  # noqa: S301 -- written by the parent process
        config = decode_config(*loaded.texts)
        self._settings = InjectionSettings(
            config, loaded.mesh, loaded.resets_users, loaded.revision, loaded.compliance_policy
        )
        self._lines.take()

    def run(self, job: bytes) -> bytes:
        """Return the outcome of a pickled Job and the AdmissionReview after it. Raise MemoryError if it takes too much
        memory."""
        stream = io.BytesIO(job)
        outcome = run(pickle.load(stream), stream.read(), self._settings)  # noqa: S301 -- written by the parent process
        return msgspec.msgpack.encode(msgspec.structs.replace(outcome, lines=self._lines.take()))


def run(job: Job, body: bytes, settings: InjectionSettings | None) -> Outcome:
    """Return the outcome of a job. `body` is the AdmissionReview. Raise MemoryError if it takes too much memory."""
    match job:
        case ConfigReview():
            return review_config(body)
        case PodReview():
            assert settings is not None
            return review_pod(job, body, settings)
    assert settings is not None
    try:
        objects = msgspec.json.encode(render_gateway(job, settings.config))
    except RenderError as error:
        return Outcome(b"", error=str(error))
    if len(objects) > LARGEST_RENDERING:
        return Outcome(b"", error=f"its objects take more than {LARGEST_RENDERING} bytes")
    return Outcome(objects)


def review_pod(job: PodReview, body: bytes, settings: InjectionSettings) -> Outcome:
    """Answer the admission review of a Pod."""
    review: AdmissionReview | None = None
    try:
        review = decode_review(body)
        answer = answer_pod(review, job.path, settings, job.facts)
    except REFUSALS as error:
        return _failed(review, str(error))
    except RecursionError:
        return _failed(review, "the pod is nested too deeply")
    except MemoryError:
        raise
    except Exception as error:  # a bug rejects this Pod only
        _log.exception("injection failed")
        return _failed(review, f"internal error: {type(error).__name__}")
    if answer is None:
        return Outcome(encode_answer(review, AdmissionResponse(True)), injection="skipped")
    return Outcome(encode_answer(review, answer))


def _failed(review: AdmissionReview | None, message: str) -> Outcome:
    _log.error("pod injection failed: %s", message)
    return Outcome(encode_answer(review, AdmissionResponse(False, message)), injection="failed")


def review_config(body: bytes) -> Outcome:
    """Answer the admission review of a configuration object."""
    review: AdmissionReview | None = None
    try:
        review = decode_review(body)
        assert review.request is not None
        verdict = validate(review.request, CATALOGUE)
    except ReviewError as error:
        return Outcome(encode_answer(review, AdmissionResponse(False, str(error))))
    except RecursionError:
        verdict = Verdict(AdmissionResponse(False, "the object is nested too deeply"), "yaml_decode_error")
    except MemoryError:
        raise
    except Exception as error:
        _log.exception("validation failed")
        return Outcome(encode_answer(review, AdmissionResponse(False, f"internal error: {type(error).__name__}")))
    return Outcome(encode_answer(review, verdict.answer), validation=validation_of(review, verdict.reason))


def validation_of(review: AdmissionReview | None, reason: str) -> Validation | None:
    """Return the result of a validation as it is counted in the metrics, or None if it is not counted."""
    if review is None or review.request is None or (reason and review.request.dry_run):
        return None
    return Validation(review.request.resource, reason)


def create_program() -> ReviewProgram:
    """Return the program of a worker."""
    return ReviewProgram()
