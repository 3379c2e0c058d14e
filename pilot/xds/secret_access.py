"""Checks whether service accounts may read Secrets. Only the service accounts of proxies that request secrets are
checked.

The results are stored in rows that derivations read.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable

from pilot.lib.logging.log import scope
from pilot.lib.xds_types import SECRET
from pilot.mesh.security.credential_access import account_of
from pilot.mesh.tables.database import AccountKey
from pilot.xds.push.connection import Connection
from pilot.xds.push.discovery import Discovery

ALLOWED_SECONDS, DENIED_SECONDS = 300.0, 60.0
"""Lifetimes of results. A denial expires sooner, because the permission may be granted at any time."""
REVIEW_TIMEOUT = 10.0
_log = scope("ads")

Review = Callable[[AccountKey], Awaitable[bool]]
"""Returns whether a service account may list the Secrets in its namespace and cluster. May raise any exception."""


class SecretAccess:
    """Maintains the rows of `Mesh.secret_access`. While a service account has no row, its proxies wait for their
    secrets.

    If an access review fails, the last result stays in force. If there is no result yet, access is denied.
    """

    def __init__(self, discovery: Discovery, review: Review, now: Callable[[], float] = time.monotonic) -> None:
        self._discovery, self._review, self._now = discovery, review, now
        self._expires_at: dict[AccountKey, float] = {}
        self._reviewing: dict[AccountKey, asyncio.Task[None]] = {}

    def on_request(self, connection: Connection) -> None:
        """Start an access review for a proxy that requests secrets, unless the last result for its service account is
        still valid."""
        account = account_of(self._discovery.db, connection.proxy)
        if account is not None and self._expires_at.get(account, 0.0) <= self._now():
            self._start_review(account)

    def sweep(self) -> None:
        """Repeat access reviews whose results have expired. Remove the expired results of service accounts that have no
        stream."""
        now, db = self._now(), self._discovery.db
        streams = [c for c in self._discovery.connections() if SECRET in c.subscriptions]
        active = {account_of(db, connection.proxy) for connection in streams}
        removed = []
        for account in [account for account, expires_at in self._expires_at.items() if expires_at <= now]:
            if account in active:
                self._start_review(account)
            elif account not in self._reviewing:
                del self._expires_at[account]
                removed.append(account)
        if removed:
            deletions = [(db.secret_access, account, None) for account in removed]
            self._discovery.commit(deletions, {"secret": len(removed)})

    async def stop(self) -> None:
        """Cancel access reviews that are in progress."""
        for task in tuple(self._reviewing.values()):
            task.cancel()
        await asyncio.gather(*self._reviewing.values(), return_exceptions=True)

    def _start_review(self, account: AccountKey) -> None:
        if account not in self._reviewing:
            task = self._reviewing[account] = asyncio.create_task(self._run_review(account))
            task.add_done_callback(lambda _: self._reviewing.pop(account, None))

    async def _run_review(self, account: AccountKey) -> None:
        table = self._discovery.db.secret_access
        try:
            async with asyncio.timeout(REVIEW_TIMEOUT):
                allowed = await self._review(account)
        except Exception as error:  # whatever fails, it must not grant access
            allowed = bool(table.peek(account))
            _log.warning(
                "cannot review whether %s/%s may read secrets: %s",
                account.namespace,
                account.name,
                str(error) or type(error).__name__,
            )
        self._expires_at[account] = self._now() + (ALLOWED_SECONDS if allowed else DENIED_SECONDS)
        self._discovery.commit([(table, account, allowed)], {"secret": 1})
