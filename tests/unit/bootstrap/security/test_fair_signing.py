"""Floods of certificate requests of one identity."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from ca.service import CallerPostponed
from pilot.bootstrap.security import fair_signing
from pilot.bootstrap.security.fair_signing import BUILT_IN, EXTERNAL, FairSigning

HONEST = "spiffe://cluster.local/ns/shop/sa/web"


class Signer:
    """A signer that answers when `answers` is set, and counts rejections."""

    def __init__(self) -> None:
        self.requests, self.rejections, self.answers = list[str](), 0, asyncio.Event()

    async def sign(self, csr: bytes, identities: Sequence[str], seconds: int, signer: str) -> list[str]:
        self.requests.append(identities[0])
        if signer == "missing":
            await self.answers.wait()
        return []

    def reject(self) -> None:
        self.rejections += 1


async def test_flood_of_one_identity_delays_others_by_one_iteration(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fair_signing, "MOST_WAITING", 900)
    signer = Signer()
    signing = FairSigning(signer.sign, *BUILT_IN, signer.reject)
    flood = [asyncio.ensure_future(signing.sign(b"", ["attack"], 60, "")) for _ in range(1000)]
    await asyncio.sleep(0)
    assert len(signer.requests) == BUILT_IN[0]
    await signing.sign(b"", [HONEST], 60, "")
    assert len(signer.requests) <= 3 * BUILT_IN[0]
    results = await asyncio.gather(*flood, return_exceptions=True)
    postponed = [result for result in results if isinstance(result, CallerPostponed)]
    assert len(signer.requests) + len(postponed) == 1001
    assert len(postponed) == signer.rejections >= 80


async def test_requests_for_a_signer_that_never_answers_leave_room_for_other_identities() -> None:
    signer = Signer()
    signing = FairSigning(signer.sign, *EXTERNAL, signer.reject)
    flood = [
        asyncio.ensure_future(signing.sign(b"", [identity], 60, "missing"))
        for identity in ("attack-1", "attack-2", "attack-3")
        for _ in range(200)
    ]
    await asyncio.sleep(0)
    await asyncio.wait_for(signing.sign(b"", [HONEST], 60, ""), 60.0)
    assert signer.requests.count("attack-1") == EXTERNAL[1]
    signer.answers.set()
    await asyncio.gather(*flood)
    assert len(signer.requests) == 601
