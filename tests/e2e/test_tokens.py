"""JWT authentication in a stock Envoy, with keys that the control plane fetches."""

from __future__ import annotations

import base64
import json
import pathlib
import time
from collections.abc import Iterator

import pytest

from testing.clients.mesh_client import MeshRequest
from testing.processes.guarded_workload import GuardedWorkload
from testing.processes.process import ControlPlane, eventually
from testing.servers.key_servers import Issuer, StaticServer

KEYS = "/keys"
NEEDS_TOKEN = ("AuthorizationPolicy", "rules: [{from: [{source: {requestPrincipals: ['*']}}]}]")


class Tokens:
    """A guarded workload, a token issuer, and its key server."""

    def __init__(self, work: pathlib.Path) -> None:
        self.issuer, self.server, self.state = Issuer("https://issuer.test"), StaticServer(), work / "state"
        self.server.answers[KEYS] = self.issuer.keys
        self.books = GuardedWorkload(work, more=("--stateDir", str(self.state)))

    def rule(self, more: str = "", path: str = KEYS) -> tuple[str, str]:
        fields = f"issuer: '{self.issuer.name}', jwksUri: '{self.server.url(path)}'"
        return "RequestAuthentication", f"jwtRules: [{{{fields}{', ' + more if more else ''}}}]"

    def apply(self, *policies: tuple[str, str], more: str = "") -> None:
        self.books.apply(self.rule(more), *policies)

    def token(self, issuer: Issuer | None = None, **claims: object) -> str:
        return (issuer or self.issuer).token(claims, time.time())

    def status(self, token: str = "", path: str = "/", **headers: str) -> int:
        authorization = {"Authorization": f"Bearer {token}"} if token else {}
        return self.books.client.status(self.books.http, MeshRequest(path=path, headers={**authorization, **headers}))

    def forwarded(self, token: str, **headers: str) -> dict[str, str]:
        """Send a request that must succeed, and return its headers at the workload."""
        assert self.status(token, **headers) == 200
        return self.books.backend.requests[-1].headers

    def stop(self) -> None:
        self.books.stop()
        self.server.stop()


@pytest.fixture(scope="module")
def tokens(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tokens]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PILOT_ALLOWED_CIDRS_IN_JWKS_URIS", "127.0.0.1/32")
        patch.setenv("PILOT_JWT_PUB_KEY_REFRESH_INTERVAL", "300ms")
        env = Tokens(tmp_path_factory.mktemp("tokens"))
        try:
            yield env
            assert env.books.envoy.rejected() == {}, env.books.envoy.tail()
        finally:
            env.stop()


def wait_for_keys(tokens: Tokens, **claims: object) -> str:
    """Return a valid token once the keys have arrived."""
    token = tokens.token(**claims)
    eventually(lambda: tokens.status(token) == 200, 20, "the keys of the issuer")
    return token


def test_only_valid_tokens_are_accepted(tokens: Tokens) -> None:
    tokens.apply(NEEDS_TOKEN, more="audiences: [books]")
    wait_for_keys(tokens, aud="books")
    now = time.time()
    other_issuer = Issuer(tokens.issuer.name)
    assert tokens.status(tokens.token(aud=["other", "books"])) == 200
    assert tokens.status() == 403, "a token is needed"
    assert tokens.status(tokens.token(aud="books", exp=int(now) - 3600)) == 401, "expired"
    assert tokens.status(tokens.token(aud="books", nbf=int(now) + 3600)) == 401, "not yet valid"
    assert tokens.status(tokens.token(aud="books", iss="https://other.test")) == 401, "wrong issuer"
    assert tokens.status(tokens.token(aud="other")) == 403, "wrong audience"
    assert tokens.status(tokens.token(other_issuer, aud="books")) == 401, "unknown key"
    assert tokens.status(tokens.token(aud="books")[:-4] + "AAAA") == 401, "invalid signature"
    assert tokens.status("no.token.atall") == 401
    header, body, _ = tokens.token(aud="books").split(".")
    unsigned = base64.urlsafe_b64encode(json.dumps({"alg": "none"}).encode()).rstrip(b"=").decode()
    assert tokens.status(f"{unsigned}.{body}.") == 401, "no signature"
    assert tokens.status(f"{header}.{body}.") == 401


def test_without_a_policy_only_invalid_tokens_are_refused(tokens: Tokens) -> None:
    tokens.apply()
    wait_for_keys(tokens)
    assert tokens.status() == 200
    assert tokens.status(tokens.token(exp=1)) == 401


def test_policies_match_claims(tokens: Tokens) -> None:
    tokens.apply(
        (
            "AuthorizationPolicy",
            "rules: [{from: [{source: {requestPrincipals: ['https://issuer.test/a*'], notRequestPrincipals: [https://issuer.test/eve]}}], "
            "when: [{key: 'request.auth.claims[groups]', values: [buyers]}, {key: 'request.auth.claims[org][unit]', notValues: [closed]}, "
            "{key: request.auth.audiences, values: [books]}, {key: request.auth.presenter, values: [app]}]}]",
        ),
    )
    claims = {"sub": "ann", "groups": ["sellers", "buyers"], "org": {"unit": "open"}, "aud": "books", "azp": "app"}
    wait_for_keys(tokens, **claims)
    assert tokens.status(tokens.token(**{**claims, "groups": "buyers"})) == 200
    for override in (
        {"sub": "bob"},
        {"groups": ["sellers"]},
        {"org": {"unit": "closed"}},
        {"aud": "other"},
        {"azp": "other"},
    ):
        assert tokens.status(tokens.token(**{**claims, **override})) == 403, override


def test_token_locations_and_claim_headers(tokens: Tokens) -> None:
    locations = "fromHeaders: [{name: x-token, prefix: 'Token '}], fromParams: [t], fromCookies: [session]"
    headers = "outputPayloadToHeader: x-payload, outputClaimToHeaders: [{header: x-sub, claim: sub}]"
    tokens.apply(NEEDS_TOKEN, more=f"{locations}, forwardOriginalToken: true, {headers}")
    token = tokens.token(sub="ann")
    eventually(lambda: tokens.status(**{"x-token": f"Token {token}"}) == 200, 20, "the keys of the issuer")
    assert tokens.status(path=f"/?t={token}") == 200
    assert tokens.status(Cookie=f"session={token}") == 200
    assert tokens.status(token) == 403, "the default location no longer applies"
    received = tokens.forwarded("", **{"x-token": f"Token {token}", "x-sub": "mallory"})
    assert received["x-sub"] == "ann"
    assert json.loads(base64.urlsafe_b64decode(received["x-payload"] + "=="))["sub"] == "ann"
    assert received["x-token"] == f"Token {token}"


def test_rotated_keys_are_used(tokens: Tokens) -> None:
    tokens.apply(NEEDS_TOKEN)
    old = wait_for_keys(tokens)
    rotated = Issuer(tokens.issuer.name, "two")
    tokens.server.answers[KEYS] = rotated.keys
    eventually(lambda: tokens.status(tokens.token(rotated)) == 200, 20, "the new keys")
    assert tokens.status(old) == 401
    tokens.server.answers[KEYS] = tokens.issuer.keys
    wait_for_keys(tokens)


def test_last_keys_survive_an_outage_and_a_restart(tokens: Tokens) -> None:
    tokens.apply(NEEDS_TOKEN)
    token = wait_for_keys(tokens)
    tokens.server.down = True
    try:
        requests = len(tokens.server.requested_paths)
        eventually(lambda: len(tokens.server.requested_paths) > requests + 1, 20, "fetches that fail")
        assert tokens.status(token) == 200
        plane = tokens.books.plane
        ports = plane.ports
        plane.stop()
        tokens.books.plane = restarted = RestartedControlPlane(
            tokens.books.work, tokens.books.folder, ports, str(tokens.state)
        )
        restarted.wait_ready()
        tokens.books.apply(tokens.rule(), NEEDS_TOKEN)
        assert tokens.status(token) == 200
        assert tokens.status(tokens.token(Issuer(tokens.issuer.name))) == 401
    finally:
        tokens.server.down = False


class RestartedControlPlane(ControlPlane):
    """A restarted control plane on the same ports."""

    def __init__(self, work: pathlib.Path, folder: pathlib.Path, ports: dict[str, int], state: str) -> None:
        more = ["--meshConfig", str(work / "mesh.yaml"), "--stateDir", state]
        super().__init__(work, folder, more=more, ports=ports)


@pytest.mark.parametrize("path", ["/nothing", "/not-keys"])
def test_cve_2026_31837_without_keys_every_token_is_refused(tokens: Tokens, path: str) -> None:
    tokens.server.answers["/not-keys"] = "<html>"
    tokens.books.apply(tokens.rule(path=path), NEEDS_TOKEN)
    assert tokens.status(tokens.token()) == 401
    assert tokens.status() == 403


def test_cve_2026_41413_keys_at_a_private_address_are_not_fetched(tokens: Tokens) -> None:
    server = StaticServer()
    server.answers[KEYS] = tokens.issuer.keys
    url = server.url(KEYS).replace("127.0.0.1", "127.0.0.2")
    try:
        tokens.books.apply(
            ("RequestAuthentication", f"jwtRules: [{{issuer: '{tokens.issuer.name}', jwksUri: '{url}'}}]"), NEEDS_TOKEN
        )
        assert tokens.status(tokens.token()) == 401
        problems = json.loads(tokens.books.plane.get("/debug/problemz"))
        assert any("not a public address" in json.dumps(problem) for problem in problems)
        assert server.requested_paths == []
    finally:
        server.stop()
