"""The HTTP handlers of the webhooks."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from aiohttp import web

from pilot.config.catalogue import Catalogue
from pilot.lib.logging.log import scope
from pilot.lib.metrics.metrics import Metrics
from webhook.server.injector import REFUSALS, Injector
from webhook.server.review import AdmissionResponse, AdmissionReview, ReviewError, decode_review, encode_answer
from webhook.server.validator import Verdict, validate

LARGEST_BODY = 6 * 1024 * 1024
"""Maximum size of a request body in bytes. It is sufficient for the two objects in a review."""
_log = scope("webhook")


class Webhooks:
    """Serves /inject and /validate. Reviews are processed one after another in a separate thread."""

    def __init__(self, injector: Injector | None, catalogue: Catalogue | None, metrics: Metrics) -> None:
        self._injector, self._catalogue, self._metrics = injector, catalogue, metrics
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="webhook")

    def add_to(self, app: web.Application) -> None:
        """Add the routes. /inject returns 404 until the injector has a configuration."""
        for path in ("/inject", "/inject/{tail:.*}"):
            app.router.add_route("*", path, self._inject)
        for path in ("/validate", "/validate/{tail:.*}"):
            app.router.add_route("*", path, self._validate)

    def close(self) -> None:
        """Stop the thread after the current review."""
        self._thread.shutdown(wait=False)

    async def _inject(self, request: web.Request) -> web.Response:
        if self._injector is None or self._injector.config is None:
            raise web.HTTPNotFound(text="404 page not found\n")
        started = time.monotonic()
        self._metrics.injection_requested()
        try:
            body = await _body(request)
        except web.HTTPException:
            self._metrics.injection_failed()
            raise
        answered = await self._in_thread(self.injected, body, request.path)
        self._metrics.injection_answered(time.monotonic() - started)
        return web.Response(body=answered, content_type="application/json")

    def injected(self, body: bytes, path: str) -> bytes:
        """Return the response body for a Pod review."""
        assert self._injector is not None
        review: AdmissionReview | None = None
        try:
            review = decode_review(body)
            answer = self._injector.answer(review, path)
        except REFUSALS as error:
            return self._failed(review, str(error))
        except RecursionError:
            return self._failed(review, "the pod is nested too deeply")
        except Exception as error:  # a bug rejects this Pod only
            _log.exception("injection failed")
            return self._failed(review, f"internal error: {type(error).__name__}")
        if answer is None:
            self._metrics.injection_skipped()
            answer = AdmissionResponse(True)
        return encode_answer(review, answer)

    def _failed(self, review: AdmissionReview | None, message: str) -> bytes:
        self._metrics.injection_failed()
        _log.error("pod injection failed: %s", message)
        return encode_answer(review, AdmissionResponse(False, message))

    async def _validate(self, request: web.Request) -> web.Response:
        try:
            body = await _body(request)
        except web.HTTPException as error:
            self._metrics.validation_http_error(error.status)
            raise
        answered = await self._in_thread(self.validated, body)
        return web.Response(body=answered, content_type="application/json")

    def validated(self, body: bytes) -> bytes:
        """Return the response body for a configuration review."""
        if self._catalogue is None:
            return encode_answer(None, AdmissionResponse(True))
        review: AdmissionReview | None = None
        try:
            review = decode_review(body)
            assert review.request is not None
            verdict = validate(review.request, self._catalogue)
        except ReviewError as error:
            return encode_answer(review, AdmissionResponse(False, str(error)))
        except RecursionError:
            verdict = Verdict(AdmissionResponse(False, "the object is nested too deeply"), "yaml_decode_error")
        except Exception as error:
            _log.exception("validation failed")
            return encode_answer(review, AdmissionResponse(False, f"internal error: {type(error).__name__}"))
        self._count(review, verdict)
        return encode_answer(review, verdict.answer)

    def _count(self, review: AdmissionReview | None, verdict: Verdict) -> None:
        if review is None or review.request is None:
            return
        resource = review.request.resource
        if not verdict.reason:
            self._metrics.validation_passed(resource.group, resource.version, resource.resource)
        elif not review.request.dry_run:
            self._metrics.validation_failed(resource.group, resource.version, resource.resource, verdict.reason)

    async def _in_thread(self, work: Callable[..., bytes], *arguments: object) -> bytes:
        return await asyncio.get_running_loop().run_in_executor(self._thread, work, *arguments)


async def _body(request: web.Request) -> bytes:
    """Return the request body.

    The status is 400 if the body is empty or too large, and 415 if its type is not JSON.
    """
    try:
        body = await request.content.read(LARGEST_BODY + 1) if (request.content_length or 0) <= LARGEST_BODY else None
        while body is not None and len(body) <= LARGEST_BODY and not request.content.at_eof():
            more = await request.content.read(LARGEST_BODY + 1 - len(body))
            if not more:
                break
            body += more
    except (web.RequestPayloadError, OSError) as error:
        raise web.HTTPBadRequest(text=f"{error}\n") from error
    if body is None or len(body) > LARGEST_BODY:
        raise web.HTTPBadRequest(text=f"limit is {LARGEST_BODY} bytes: http: request body too large\n")
    if not body:
        raise web.HTTPBadRequest(text="no body found\n")
    if request.headers.get("Content-Type") != "application/json":
        raise web.HTTPUnsupportedMediaType(text="invalid Content-Type, want `application/json`\n")
    return body
