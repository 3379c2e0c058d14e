"""Debug pages for callers that are not on this machine: what they are told, and by what they are known. How servers of objects are verified."""

from __future__ import annotations

import pathlib
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import grpc
import pytest

from ca.pem import certificate_pem
from pilot.bootstrap import diagnostics
from pilot.bootstrap.config_sources import server_credentials, server_name
from pilot.bootstrap.diagnostics import HttpIdentities, debug_over_xds
from pilot.bootstrap.security.process_security import ROW_KEY, TrustRootPublisher
from pilot.config.networking.destination_rule import ClientTLSSettings
from pilot.debug.page import Refused
from pilot.envoy.plans.proxy_plan import proxy_plan
from pilot.lib.metrics import Metrics
from pilot.mcp.stream import CannotConnectError
from pilot.mesh.tables.database import Mesh
from pilot.xds.authn.identity import Caller, IdentityError
from pilot.xds.debug_requests import DebugRequestError
from pilot.xds.push.discovery import Discovery
from testing.security.certificates import root

SOURCES: Any = object()


@pytest.mark.parametrize(
    ("status", "text", "identity", "code", "told"),
    [
        (400, "no such page", "spiffe://a", grpc.StatusCode.INVALID_ARGUMENT, "no such page"),
        (401, "", "", grpc.StatusCode.UNAUTHENTICATED, "authentication required"),
        (
            403,
            "",
            "spiffe://a",
            grpc.StatusCode.PERMISSION_DENIED,
            'the debug info is not available for current identity: "spiffe://a"',
        ),
    ],
)
async def test_who_is_shown_nothing_over_xds_is_told_why(
    monkeypatch: pytest.MonkeyPatch, status: int, text: str, identity: str, code: grpc.StatusCode, told: str
) -> None:
    async def ask(*_: Any) -> Any:
        raise Refused(status, text)

    monkeypatch.setattr(diagnostics, "ask", ask)
    with pytest.raises(DebugRequestError) as caught:
        await debug_over_xds(SOURCES)("type", ["name"], identity)
    assert caught.value.args == (code, told)


@pytest.mark.parametrize(("identity", "identities"), [("spiffe://a", ("spiffe://a",)), ("", ())])
async def test_pages_are_asked_for_by_who_has_proved_who_he_is(
    monkeypatch: pytest.MonkeyPatch, identity: str, identities: tuple[str, ...]
) -> None:
    asked: list[Any] = []

    async def ask(*given: Any) -> Any:
        asked.append(given)
        return ["resources"], "istiod-1"

    monkeypatch.setattr(diagnostics, "ask", ask)
    assert tuple(await debug_over_xds(SOURCES)("type", ["name"], identity)) == (["resources"], "istiod-1")
    assert asked == [(SOURCES, "type", ["name"], identities)]


async def test_over_http_callers_are_known_as_on_the_port_with_tls() -> None:
    async def authenticate(caller: Caller) -> Sequence[str]:
        if caller.token != "right":
            raise IdentityError("wrong")
        return (f"spiffe://{caller.address}",)

    identify = HttpIdentities(authenticate)
    assert await identify("10.0.0.1:1", {"authorization": "Bearer right"}) == ("spiffe://10.0.0.1:1",)
    assert await identify("10.0.0.1:1", {}) == ()


# -- servers of objects ------------------------------------------------------------------------------------------------


class Channels:
    """Notes what credentials are made of."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.secrets: dict[str, dict[str, bytes]] = {}
        patch.setattr(grpc, "ssl_channel_credentials", lambda *given: given)

    async def read(self, name: str) -> dict[str, bytes]:
        return self.secrets.get(name, {})

    async def made(self, has_secrets: bool = True, **said: Any) -> Any:
        return await server_credentials(ClientTLSSettings(**said), self.read if has_secrets else None)


async def test_roots_and_certificates_are_those_of_files_and_secrets(
    monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path
) -> None:
    it = Channels(monkeypatch)
    files = {name: str(tmp_path / name) for name in ("roots", "chain", "key")}
    for name, path in files.items():
        pathlib.Path(path).write_text(name)
    by_files: Any = {
        "ca_certificates": files["roots"],
        "client_certificate": files["chain"],
        "private_key": files["key"],
    }
    assert await server_credentials(None, it.read) is None
    assert await it.made(mode="DISABLE", **by_files) is None
    assert await it.made(mode="SIMPLE", **by_files) == (b"roots",)
    assert await it.made(mode="MUTUAL", **by_files) == (b"roots", b"key", b"chain")
    assert await it.made(mode="MUTUAL", ca_certificates=files["roots"]) == (b"roots",)
    it.secrets = {"both": {"cacert": b"first", "ca.crt": b"second"}, "one": {"cacert": b"", "ca.crt": b"second"}}
    assert await it.made(mode="SIMPLE", credential_name="both", **by_files) == (b"first",)
    assert await it.made(mode="SIMPLE", credential_name="one") == (b"second",)
    for name, has_secrets in (("none", True), ("both", False)):
        with pytest.raises(CannotConnectError, match=f"^there is no Secret {name} with cacert or ca.crt$"):
            await it.made(has_secrets, mode="SIMPLE", credential_name=name)
    with pytest.raises(CannotConnectError, match=r"^/nowhere: No such file or directory$"):
        await it.made(mode="SIMPLE", ca_certificates="/nowhere")


def test_a_server_is_called_by_the_name_that_its_certificate_must_have() -> None:
    assert server_name(None) == ""
    assert server_name(ClientTLSSettings(mode="DISABLE", sni="a.com")) == ""
    assert server_name(ClientTLSSettings(mode="SIMPLE", sni="a.com")) == "a.com"
    assert server_name(ClientTLSSettings(mode="MUTUAL", sni="a.com", subject_alt_names=("b.com", "c.com"))) == "b.com"
    assert server_name(ClientTLSSettings(mode="SIMPLE")) == ""


# -- roots that proxies are told ---------------------------------------------------------------------------------------


async def test_roots_of_signers_are_told_beside_those_of_the_authority_each_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    discovery = Discovery(Mesh(), Metrics(), proxy_plan)
    first, second = root(1).certificate, root(2).certificate
    pem = [certificate_pem(one).decode() for one in (first, second)]
    reasons: list[Any] = []
    commit = discovery.commit

    def noting(edits: Any, why: Any) -> None:
        reasons.append(why)
        commit(edits, why)

    monkeypatch.setattr(discovery, "commit", noting)
    issuing: Any = SimpleNamespace(authority=None, on_change=[])
    signers: Any = SimpleNamespace(roots=(second,))
    await TrustRootPublisher(issuing, signers, discovery).start()
    assert discovery.db.authority_roots.peek(ROW_KEY) == (pem[1],), "the authority has not started"
    issuing.authority = SimpleNamespace(signer=SimpleNamespace(roots=(first, second)))
    issuing.on_change[0]()
    assert discovery.db.authority_roots.peek(ROW_KEY) == tuple(pem)
    assert reasons == [{"global": 1}] * 2
