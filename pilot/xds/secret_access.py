"""Whether service accounts may read Secrets is asked for those whose proxies ask for secrets, and put where derivations read it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable

from pilot.lib.log import scope
from pilot.lib.xds_types import SECRET
from pilot.mesh.security.credential_access import account_of
from pilot.mesh.tables.database import AccountKey
from pilot.xds.connection import Connection
from pilot.xds.discovery import Discovery

ALLOWED_SECONDS, DENIED_SECONDS = 300.0, 60.0
"""How long an answer holds: a refusal is short, because somebody may be about to mend it."""
PATIENCE = 10.0
_log = scope("ads")

Review = Callable[[AccountKey], Awaitable[bool]]
"""Finds out whether a service account may list the Secrets of its namespace, in its cluster. It raises whatever it likes where it cannot."""


class SecretAccess:
    """Keeps the rows of `Mesh.secret_access`. While there is no row of an account, its proxies wait for their secrets.

    Where the answer cannot be had, the last one stays; an account that never had one is refused.
    """

    def __init__(self, discovery: Discovery, review: Review, now: Callable[[], float] = time.monotonic) -> None:
        self._discovery, self._review, self._now = discovery, review, now
        self._until: dict[AccountKey, float] = {}
        self._asking: dict[AccountKey, asyncio.Task[None]] = {}
        discovery.on_asked[SECRET] = self.asked

    def asked(self, connection: Connection) -> None:
        """Called when a stream asks for secrets."""
        account = account_of(self._discovery.db, connection.proxy)
        if account is not None and self._until.get(account, 0.0) <= self._now():
            self._ask(account)

    def sweep(self) -> None:
        """Asks again for the accounts whose answer has become old, and forgets those that have no stream any more."""
        now, db = self._now(), self._discovery.db
        streams = [c for c in self._discovery.connections() if SECRET in c.watches]
        used = {account_of(db, connection.proxy) for connection in streams}
        gone = []
        for account in [account for account, until in self._until.items() if until <= now]:
            if account in used:
                self._ask(account)
            elif account not in self._asking:
                del self._until[account]
                gone.append(account)
        if gone:
            self._discovery.commit([(db.secret_access, account, None) for account in gone], {"secret": len(gone)})

    async def stop(self) -> None:
        """Gives up what is being asked."""
        for task in tuple(self._asking.values()):
            task.cancel()
        await asyncio.gather(*self._asking.values(), return_exceptions=True)

    def _ask(self, account: AccountKey) -> None:
        if account not in self._asking:
            task = self._asking[account] = asyncio.create_task(self._settle(account))
            task.add_done_callback(lambda _: self._asking.pop(account, None))

    async def _settle(self, account: AccountKey) -> None:
        table = self._discovery.db.secret_access
        try:
            async with asyncio.timeout(PATIENCE):
                allowed = await self._review(account)
        except Exception as error:  # of any client and its network: none may let somebody in
            allowed = bool(table.peek(account))
            _log.warning(
                "whether %s/%s may read secrets is not known: %s",
                account.namespace,
                account.name,
                str(error) or type(error).__name__,
            )
        self._until[account] = self._now() + (ALLOWED_SECONDS if allowed else DENIED_SECONDS)
        self._discovery.commit([(table, account, allowed)], {"secret": 1})
