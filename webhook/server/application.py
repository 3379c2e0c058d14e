"""The HTTP handlers of the webhooks."""

from __future__ import annotations

import time

from aiohttp import web

from pilot.lib.logging.log import scope
from pilot.lib.metrics.metrics import Metrics
from webhook.server.bodies import LARGEST_CONFIG_REVIEW, LARGEST_POD_REVIEW, BodyBudget, read_body
from webhook.server.injector import Injector
from webhook.server.outcome import Validation
from webhook.server.reviewers import Reviewers

_log = scope("webhook")
_TOO_MANY_REQUESTS = web.HTTPTooManyRequests.status_code


class Webhooks:
    """Serves /inject and /validate. Admission reviews are answered by worker processes."""

    def __init__(self, injector: Injector | None, reviewers: Reviewers, metrics: Metrics) -> None:
        self._injector, self._reviewers, self._metrics = injector, reviewers, metrics
        self._budget = BodyBudget()
        self._is_absence_logged = False

    def add_to(self, app: web.Application) -> None:
        """Add the routes. /inject returns 404 until the injector has a configuration."""
        for path in ("/inject", "/inject/{tail:.*}"):
            app.router.add_route("*", path, self._inject)
        for path in ("/validate", "/validate/{tail:.*}"):
            app.router.add_route("*", path, self._validate)

    async def _inject(self, request: web.Request) -> web.Response:
        if self._injector is None or self._injector.config is None:
            self._log_absence()
            raise web.HTTPNotFound(text="404 page not found\n")
        started, address = time.monotonic(), request.remote or ""
        self._metrics.injection_requested()
        try:
            with self._budget.reserve(address) as reservation:
                body = await read_body(request, LARGEST_POD_REVIEW, reservation)
                outcome = await self._reviewers.review_pod(body, request.path, address)
        except web.HTTPException as error:
            self._metrics.injection_failed()
            self._count_excess("inject", "requests" if error.status == _TOO_MANY_REQUESTS else "")
            raise
        self._count_excess("inject", outcome.exceeded)
        if outcome.injection == "skipped":
            self._metrics.injection_skipped()
        elif outcome.injection == "failed":
            self._metrics.injection_failed()
        self._metrics.injection_answered(time.monotonic() - started)
        return web.Response(body=outcome.body, content_type="application/json")

    def _log_absence(self) -> None:
        """Log why the first request is not served."""
        if not self._is_absence_logged:
            self._is_absence_logged = True
            reason = (
                "INJECT_ENABLED is false"
                if self._injector is None
                else "there is no configuration in --injectionDir or the ConfigMap istio-sidecar-injector"
            )
            _log.warning("a request for /inject got status 404: %s", reason)

    async def _validate(self, request: web.Request) -> web.Response:
        address = request.remote or ""
        try:
            with self._budget.reserve(address) as reservation:
                body = await read_body(request, LARGEST_CONFIG_REVIEW, reservation)
                outcome = await self._reviewers.review_config(body, address)
        except web.HTTPException as error:
            self._metrics.validation_http_error(error.status)
            self._count_excess("validate", "requests" if error.status == _TOO_MANY_REQUESTS else "")
            raise
        self._count_excess("validate", outcome.exceeded)
        self._count(outcome.validation)
        return web.Response(body=outcome.body, content_type="application/json")

    def _count_excess(self, webhook: str, reason: str) -> None:
        if reason:
            self._metrics.review_rejected(webhook, reason)

    def _count(self, validation: Validation | None) -> None:
        if validation is None:
            return
        resource = validation.resource
        if validation.reason:
            self._metrics.validation_failed(resource.group, resource.version, resource.resource, validation.reason)
        else:
            self._metrics.validation_passed(resource.group, resource.version, resource.resource)
