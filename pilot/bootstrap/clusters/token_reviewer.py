"""Reviews of tokens by an API server, with limits.

Anyone can send tokens. Reviews therefore have a request limit of their own, take turns by address, and are avoided
where the result is certain.
"""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

from pilot.kube.api_client import ApiClient, Throttle
from pilot.kube.api_errors import KubeError
from pilot.kube.reviews import TokenRejected, review_token
from pilot.lib.fair_slots import FairSlots, NoSlot
from pilot.lib.text import cut, one_line
from pilot.lib.tokens.jwt import TokenError
from pilot.lib.tokens.unverified import check_unverified
from pilot.xds.authn.identity import IdentityError, TooManyCallers
from pilot.xds.authn.service_account import Review

CONCURRENT_REVIEWS = 32
"""Maximum number of concurrent reviews by one API server. A review takes a few milliseconds."""
MAX_WAITING = 2_000
"""Maximum number of callers that wait for a review. Their tokens have at most 16 KiB each."""
REVIEW_TIMEOUT = 10.0
"""Timeout of a review in seconds."""
ACCEPTED_SECONDS, REJECTED_SECONDS = 10.0, 5.0
"""Lifetimes of results in seconds. API servers themselves store the results of service account tokens for 10 s. A token
may be rejected only because the API server does not know its Pod yet."""
RESULTS_CAPACITY = 4_096
"""Maximum number of stored results of each kind."""
_LONGEST_REASON = 500


class _Result(NamedTuple):
    """A review, or the reason for which a token was rejected. It is valid until `expires_at`."""

    review: Review | str
    expires_at: float


class _Results:
    """The latest results. Their keys are digests of tokens."""

    def __init__(self) -> None:
        self._results: dict[bytes, _Result] = {}

    def find(self, key: bytes, now: float) -> Review | str | None:
        result = self._results.get(key)
        return result.review if result is not None and now < result.expires_at else None

    def store(self, key: bytes, review: Review | str, expires_at: float) -> None:
        self._results.pop(key, None)
        self._results[key] = _Result(review, expires_at)
        if len(self._results) > RESULTS_CAPACITY:
            del self._results[next(iter(self._results))]


class TokenReviewer:
    """Reviews tokens with one API server, using at most `throttle`. `now` returns the Unix time. `on_rejected` is
    called when a caller is rejected because too many callers wait."""

    def __init__(
        self,
        client: ApiClient,
        throttle: Throttle,
        now: Callable[[], float] = time.time,
        on_rejected: Callable[[], None] = lambda: None,
    ) -> None:
        self._client, self._throttle, self._now, self._on_rejected = client, throttle, now, on_rejected
        self._slots = FairSlots(CONCURRENT_REVIEWS, MAX_WAITING)
        self._accepted, self._rejected = _Results(), _Results()

    async def __call__(self, token: str, audiences: Sequence[str], host: str) -> Review:
        """Return the user of a token. Callers on different hosts take turns.

        Raise IdentityError if the token is rejected or the review fails.
        """
        try:
            expires_at = check_unverified(token, audiences, self._now())
        except TokenError as error:
            raise IdentityError(_shorten(error)) from None
        key = hashlib.sha256("\0".join((token, *audiences)).encode()).digest()
        result = self._find(key)
        if result is None:
            try:
                async with self._slots.slot(host):
                    result = self._find(key) or await self._review(key, token, audiences, expires_at)
            except NoSlot:
                self._on_rejected()
                raise TooManyCallers("too many callers are waiting for the review of a token") from None
        if isinstance(result, str):
            raise IdentityError(result)
        return result

    def _find(self, key: bytes) -> Review | str | None:
        now = self._now()
        return self._accepted.find(key, now) or self._rejected.find(key, now)

    async def _review(self, key: bytes, token: str, audiences: Sequence[str], expires_at: float) -> Review | str:
        """Query the API server, and store the result."""
        try:
            async with asyncio.timeout(REVIEW_TIMEOUT):
                user = await review_token(self._client, token, audiences, self._throttle)
        except TokenRejected as error:
            reason = _shorten(error)
            self._rejected.store(key, reason, self._now() + REJECTED_SECONDS)
            return reason
        except KubeError as error:
            raise IdentityError(_shorten(error)) from error
        except TimeoutError:
            raise IdentityError(f"the API server did not review the token within {REVIEW_TIMEOUT:.0f} s") from None
        review = Review(user.username, user.groups, user.extra)
        self._accepted.store(key, review, min(self._now() + ACCEPTED_SECONDS, expires_at))
        return review


def _shorten(error: Exception) -> str:
    return cut(one_line(str(error)), _LONGEST_REASON)
