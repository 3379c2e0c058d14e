"""Debug pages for remote callers, credentials of config servers, and published trust roots."""

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
    ("status", "text", "identity", "code", "message"),
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
async def test_refused_page_maps_to_a_grpc_status(
    monkeypatch: pytest.MonkeyPatch, status: int, text: str, identity: str, code: grpc.StatusCode, message: str
) -> None:
    async def refuse(*_: Any) -> Any:
        raise Refused(status, text)

    monkeypatch.setattr(diagnostics, "ask", refuse)
    with pytest.raises(DebugRequestError) as error:
        await debug_over_xds(SOURCES)("type", ["name"], identity)
    assert error.value.args == (code, message)


@pytest.mark.parametrize(("identity", "identities"), [("spiffe://a", ("spiffe://a",)), ("", ())])
async def test_page_request_carries_the_identity(
    monkeypatch: pytest.MonkeyPatch, identity: str, identities: tuple[str, ...]
) -> None:
    calls: list[Any] = []

    async def ask(*args: Any) -> Any:
        calls.append(args)
        return ["resources"], "istiod-1"

    monkeypatch.setattr(diagnostics, "ask", ask)
    assert tuple(await debug_over_xds(SOURCES)("type", ["name"], identity)) == (["resources"], "istiod-1")
    assert calls == [(SOURCES, "type", ["name"], identities)]


async def test_http_callers_are_authenticated_by_token() -> None:
    async def authenticate(caller: Caller) -> Sequence[str]:
        if caller.token != "right":
            raise IdentityError("wrong")
        return (f"spiffe://{caller.address}",)

    identify = HttpIdentities(authenticate)
    assert await identify("10.0.0.1:1", {"authorization": "Bearer right"}) == ("spiffe://10.0.0.1:1",)
    assert await identify("10.0.0.1:1", {}) == ()


# -- config servers ----------------------------------------------------------------------------------------------------


class Channels:
    """Replaces channel credentials by their arguments."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.secrets: dict[str, dict[str, bytes]] = {}
        patch.setattr(grpc, "ssl_channel_credentials", lambda *args: args)

    async def read(self, name: str) -> dict[str, bytes]:
        return self.secrets.get(name, {})

    async def credentials(self, has_secrets: bool = True, **options: Any) -> Any:
        return await server_credentials(ClientTLSSettings(**options), self.read if has_secrets else None)


async def test_credentials_come_from_files_and_secrets(monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path) -> None:
    channels = Channels(monkeypatch)
    files = {name: str(tmp_path / name) for name in ("roots", "chain", "key")}
    for name, path in files.items():
        pathlib.Path(path).write_text(name)
    by_files: Any = {
        "ca_certificates": files["roots"],
        "client_certificate": files["chain"],
        "private_key": files["key"],
    }
    assert await server_credentials(None, channels.read) is None
    assert await channels.credentials(mode="DISABLE", **by_files) is None
    assert await channels.credentials(mode="SIMPLE", **by_files) == (b"roots",)
    assert await channels.credentials(mode="MUTUAL", **by_files) == (b"roots", b"key", b"chain")
    assert await channels.credentials(mode="MUTUAL", ca_certificates=files["roots"]) == (b"roots",)
    channels.secrets = {"both": {"cacert": b"first", "ca.crt": b"second"}, "one": {"cacert": b"", "ca.crt": b"second"}}
    assert await channels.credentials(mode="SIMPLE", credential_name="both", **by_files) == (b"first",)
    assert await channels.credentials(mode="SIMPLE", credential_name="one") == (b"second",)
    for name, has_secrets in (("none", True), ("both", False)):
        with pytest.raises(CannotConnectError, match=f"^there is no Secret {name} with cacert or ca.crt$"):
            await channels.credentials(has_secrets, mode="SIMPLE", credential_name=name)
    with pytest.raises(CannotConnectError, match=r"^/nowhere: No such file or directory$"):
        await channels.credentials(mode="SIMPLE", ca_certificates="/nowhere")


def test_server_name_comes_from_the_tls_settings() -> None:
    assert server_name(None) == ""
    assert server_name(ClientTLSSettings(mode="DISABLE", sni="a.com")) == ""
    assert server_name(ClientTLSSettings(mode="SIMPLE", sni="a.com")) == "a.com"
    assert server_name(ClientTLSSettings(mode="MUTUAL", sni="a.com", subject_alt_names=("b.com", "c.com"))) == "b.com"
    assert server_name(ClientTLSSettings(mode="SIMPLE")) == ""


# -- trust roots for proxies -------------------------------------------------------------------------------------------


async def test_published_roots_are_deduplicated(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    discovery = Discovery(Mesh(), Metrics(), proxy_plan)
    first, second = root(1).certificate, root(2).certificate
    pem = [certificate_pem(certificate).decode() for certificate in (first, second)]
    reasons: list[Any] = []
    commit = discovery.commit

    def record(edits: Any, trigger: Any) -> None:
        reasons.append(trigger)
        commit(edits, trigger)

    monkeypatch.setattr(discovery, "commit", record)
    authority: Any = SimpleNamespace(authority=None, on_change=[])
    signers: Any = SimpleNamespace(roots=(second,))
    await TrustRootPublisher(authority, signers, discovery).start()
    assert discovery.db.authority_roots.peek(ROW_KEY) == (pem[1],), "the authority has not started"
    authority.authority = SimpleNamespace(signer=SimpleNamespace(roots=(first, second)))
    authority.on_change[0]()
    assert discovery.db.authority_roots.peek(ROW_KEY) == tuple(pem)
    assert reasons == [{"global": 1}] * 2
