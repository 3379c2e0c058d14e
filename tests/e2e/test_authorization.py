"""Requests and connections to a stock Envoy under AuthorizationPolicies, allowed and denied."""

from __future__ import annotations

import json
import urllib.parse
from collections.abc import Iterator, Mapping
from typing import NamedTuple

import pytest

from testing.clients.mesh_client import MeshRequest
from testing.processes.guarded_workload import GuardedWorkload, Policy

TD = "spiffe://cluster.local/ns"
WEB, EVE, CRON, OTHER = f"{TD}/shop/sa/web", f"{TD}/shop/sa/eve", f"{TD}/jobs/sa/cron.io", f"{TD}/other/sa/web"
OLD = "spiffe://old.td/ns/shop/sa/web"
ANONYMOUS = ""
MESH = "{trustDomainAliases: [old.td], pathNormalization: {normalization: DECODE_AND_MERGE_SLASHES}}"


class Case(NamedTuple):
    """Policies, and the requests that they allow and deny."""

    name: str
    policies: tuple[Policy, ...]
    passes: tuple[MeshRequest, ...]
    fails: tuple[MeshRequest, ...]
    annotations: Mapping[str, str] = {}


def allow(rules: str) -> Policy:
    return "AuthorizationPolicy", f"selector: {{matchLabels: {{app: books}}}}, rules: {rules}"


def deny(rules: str) -> Policy:
    return "AuthorizationPolicy", f"action: DENY, rules: {rules}"


def source(fields: str) -> str:
    return f"[{{from: [{{source: {{{fields}}}}}]}}]"


def operation(fields: str) -> str:
    return f"[{{to: [{{operation: {{{fields}}}}}]}}]"


def when(key: str, fields: str) -> str:
    return f"[{{when: [{{key: '{key}', {fields}}}]}}]"


def tcp(identity: str = WEB, **fields: str) -> MeshRequest:
    return MeshRequest(identity=identity, tcp=True, **fields)  # type: ignore[arg-type]


def get(path: str = "/", identity: str = WEB, **headers: str) -> MeshRequest:
    """Return a request. `sni="other"` stands for the second HTTP port."""
    return MeshRequest(
        identity=identity, path=path, headers={name.replace("_", "-"): value for name, value in headers.items()}
    )


CASES = [
    Case("no policy", (), (get(), get(identity=ANONYMOUS), tcp(), tcp(ANONYMOUS)), ()),
    Case("an ALLOW without rules", (("AuthorizationPolicy", ""),), (), (get(), get(identity=ANONYMOUS), tcp())),
    Case("an ALLOW of all requests", (allow("[{}]"),), (get(), get(identity=ANONYMOUS), tcp(), tcp(ANONYMOUS)), ()),
    Case("DENY wins over ALLOW", (allow("[{}]"), deny("[{}]")), (), (get(), tcp())),
    Case(
        "principals",
        (allow(source("principals: [cluster.local/ns/shop/sa/web, '*/sa/cron.io']")),),
        (get(), get(identity=CRON), get(identity=OLD), tcp(), tcp(OLD)),
        (get(identity=EVE), get(identity=OTHER), get(identity=ANONYMOUS), tcp(EVE), tcp(ANONYMOUS)),
    ),
    Case(
        "any principal",
        (allow(source("principals: ['*']")),),
        (get(), get(identity=EVE), tcp(EVE)),
        (get(identity=ANONYMOUS), tcp(ANONYMOUS)),
    ),
    Case(
        "all except a principal",
        (allow(source("notPrincipals: [cluster.local/ns/shop/sa/eve]")),),
        (get(), get(identity=ANONYMOUS), tcp()),
        (get(identity=EVE), tcp(EVE)),
    ),
    Case(
        "a DENY of requests without an identity",
        (deny(source("notPrincipals: ['*']")),),
        (get(), tcp()),
        (get(identity=ANONYMOUS), tcp(ANONYMOUS)),
    ),
    Case(
        "namespaces",
        (allow(source("namespaces: [sh*, jobs], notNamespaces: [jobs]")),),
        (get(), tcp()),
        (get(identity=CRON), get(identity=OTHER), tcp(OTHER)),
    ),
    Case(
        "CVE-2026-39350 dots in service accounts",
        (allow(source("serviceAccounts: [web, jobs/cron.io]")),),
        (get(), get(identity=CRON), tcp(CRON)),
        (
            get(identity=EVE),
            get(identity=OTHER),
            get(identity=f"{TD}/jobs/sa/cronXio"),
            get(identity=f"{TD}/jobs/sa/cron-io"),
            tcp(f"{TD}/jobs/sa/cronXio"),
        ),
    ),
    Case(
        "CVE-2026-39350 dots in denied service accounts",
        (deny(source("serviceAccounts: [jobs/cron.io]")),),
        (get(identity=f"{TD}/jobs/sa/cronXio"), get()),
        (get(identity=CRON), tcp(CRON)),
    ),
    Case(
        "trust domains",
        (allow(source("trustDomains: [cluster.local]")),),
        (get(), get(identity=OLD), tcp(OLD)),
        (get(identity=ANONYMOUS), tcp(ANONYMOUS)),
    ),
    Case(
        "all except a trust domain",
        (deny(source("notTrustDomains: ['*.local']")),),
        (get(), tcp()),
        (get(identity=OLD), tcp(OLD)),
    ),
    Case(
        "peer addresses",
        (allow(source("ipBlocks: [127.0.0.0/30], notIpBlocks: [127.0.0.2]")),),
        (get(), tcp()),
        (get()._replace(source="127.0.0.2"), get()._replace(source="127.0.0.9"), tcp()._replace(source="127.0.0.2")),
    ),
    Case(
        "client addresses behind proxies",
        (allow(source("remoteIpBlocks: [192.0.2.0/24]")),),
        (get(x_forwarded_for="192.0.2.7"),),
        (get(x_forwarded_for="198.51.100.1"), get(), tcp()),
    ),
    Case(
        "methods",
        (allow(operation("methods: [GET]")),),
        (get(), get("/a")),
        (get()._replace(method="POST"), get()._replace(method="HEAD"), tcp()),
    ),
    Case(
        "exact paths, prefixes and suffixes",
        (allow(operation("paths: [/a, '/b/*', '*/c'], notPaths: [/b/no]")),),
        (get("/a"), get("/b/x"), get("/x/c"), get("/a?q=1"), get("//a"), get("/b/../a")),
        (get("/"), get("/a/"), get("/b"), get("/b/no"), get("/A"), get("/x/cc"), tcp()),
    ),
    Case(
        "path templates",
        (allow(operation("paths: ['/items/{*}', '/files/{**}', '/u/{*}/p/{*}']")),),
        (get("/items/1"), get("/files/a/b"), get("/u/me/p/2")),
        (get("/items"), get("/items/1/2"), get("/u/me/q/2"), get("/file/a"), tcp()),
    ),
    Case(
        "CVE-2021-31920 escaped and repeated slashes",
        (deny(operation("paths: ['/admin/*'], ports: ['{http}']")),),
        (get("/admins"), get("/public"), tcp()),
        (
            get("/admin/x"),
            get("/admin%2Fx"),
            get("/admin%2fx"),
            get("//admin//x"),
            get("/x/../admin/x"),
            get("/admin%5Cx"),
            get("/./admin/x"),
        ),
    ),
    Case(
        "CVE-2021-39156 fragments",
        (deny(operation("paths: [/admin], ports: ['{http}']")),),
        (get("/other"),),
        (get("/admin"), get("/admin#x"), get("/admin#"), get("/admin?x#y")),
    ),
    Case(
        "CVE-2021-39155 hosts in another case",
        (deny(operation("hosts: [admin.books, '*.secret'], ports: ['{http}']")),),
        (get(), get()._replace(host="books")),
        tuple(
            get()._replace(host=host) for host in ("admin.books", "ADMIN.books", "Admin.Books", "a.secret", "A.SECRET")
        ),
    ),
    Case(
        "allowed hosts",
        (allow(operation("hosts: [books.shop, 'books.shop:*'], notHosts: ['*:99']")),),
        (get(), get()._replace(host="BOOKS.shop"), get()._replace(host="books.shop:80")),
        (get()._replace(host="other.shop"), get()._replace(host="books.shop:99"), tcp()),
    ),
    Case("ports", (allow(operation("ports: ['{http}', '{tcp}']")),), (get(), tcp()), (get(sni="other"),)),
    Case("all except a port", (allow(operation("notPorts: ['{tcp}']")),), (get(), get(sni="other")), (tcp(),)),
    Case(
        "a DENY rule with HTTP fields and without a port denies TCP too",
        (deny(operation("methods: [DELETE]")),),
        (get(),),
        (get()._replace(method="DELETE"), tcp()),
    ),
    Case(
        "a DENY rule with HTTP fields and its port does not affect TCP",
        (deny(operation("methods: [DELETE], ports: ['{http}']")),),
        (get(), tcp()),
        (get()._replace(method="DELETE"),),
    ),
    Case(
        "headers",
        (allow(when("request.headers[x-role]", "values: [admin, 'ops-*'], notValues: [ops-guest]")),),
        (get(x_role="admin"), get(x_role="ops-1")),
        (get(), get(x_role="user"), get(x_role="ops-guest"), tcp()),
    ),
    Case(
        "a header that is present",
        (deny(when("request.headers[x-debug]", "values: ['*']")),),
        (get(),),
        (get(x_debug="1"),),
    ),
    Case(
        "SNI",
        (allow(when("connection.sni", "values: ['*.shop']")),),
        (get(), tcp()),
        (get(identity=ANONYMOUS), get()._replace(sni="x.y"), tcp()._replace(sni="x.y")),
    ),
    Case("a destination.port condition", (allow(when("destination.port", "values: ['{tcp}']")),), (tcp(),), (get(),)),
    Case(
        "a source.ip condition",
        (allow(when("source.ip", "notValues: [127.0.0.2]")),),
        (get(), tcp()),
        (get()._replace(source="127.0.0.2"), tcp()._replace(source="127.0.0.2")),
    ),
    Case(
        "a remote.ip condition",
        (deny(when("remote.ip", "values: [192.0.2.0/24]")),),
        (get(),),
        (get(x_forwarded_for="192.0.2.1"),),
    ),
    Case(
        "a source.namespace condition",
        (allow(when("source.namespace", "values: [shop]")),),
        (get(), tcp()),
        (get(identity=CRON), tcp(CRON)),
    ),
    Case(
        "a source.principal condition",
        (deny(when("source.principal", "values: [old.td/ns/shop/sa/web]")),),
        (get(identity=EVE), tcp(EVE)),
        (get(), get(identity=OLD), tcp(OLD)),
    ),
    Case("a destination.ip condition", (allow(when("destination.ip", "values: [127.0.0.1]")),), (get(), tcp()), ()),
    Case(
        "sources, operations and conditions in one rule",
        (
            allow(
                "[{from: [{source: {namespaces: [shop]}}, {source: {namespaces: [jobs]}}], to: [{operation: {methods: [GET], paths: ['/a*']}}, "
                "{operation: {methods: [POST]}}], when: [{key: 'request.headers[x]', values: ['1']}]}]"
            ),
        ),
        (get("/a", x="1"), get("/a", identity=CRON, x="1"), get("/z", x="1")._replace(method="POST")),
        (get("/a"), get("/b", x="1"), get("/a", identity=OTHER, x="1"), get("/a", x="2"), tcp()),
    ),
    Case(
        "several rules and policies",
        (allow(source("namespaces: [jobs]")), allow(operation("paths: [/open]"))),
        (get("/open"), get(identity=CRON)),
        (get("/x"),),
    ),
    Case("a dry-run DENY", (deny("[{}]"),), (get(), tcp()), (), {"istio.io/dry-run": "true"}),
    Case(
        "a dry-run ALLOW",
        (allow(operation("paths: [/x]")),),
        (get(), tcp()),
        (),
        {"istio.io/dry-run": "true"},
    ),
    Case(
        "an AUDIT",
        (("AuthorizationPolicy", f"action: AUDIT, rules: {operation('methods: [GET]')}"),),
        (get(), tcp()),
        (),
    ),
]


@pytest.fixture(scope="module")
def books(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GuardedWorkload]:
    workload = GuardedWorkload(tmp_path_factory.mktemp("guarded"), MESH)
    try:
        yield workload
        assert workload.envoy.rejected() == {}, workload.envoy.tail()
    finally:
        workload.stop()


def passes(books: GuardedWorkload, request: MeshRequest) -> bool:
    """Return whether a request reaches the workload."""
    if request.tcp:
        return books.client.connects(books.tcp, request)
    port, headers = (books.other, {}) if request.headers.get("sni") == "other" else (books.http, request.headers)
    return books.client.status(port, request._replace(headers=headers)) == 200


_UNUSUAL = frozenset("%#\\.")  # characters in paths that Envoy normalizes or rejects


def predicts(books: GuardedWorkload, request: MeshRequest) -> bool:
    """Return whether the authz debug page allows a request."""
    other = request.headers.get("sni") == "other"
    authz_request = {
        "tcp": request.tcp,
        "method": request.method,
        "path": request.path.replace("//", "/"),
        "host": request.host,
        "headers": dict(request.headers),
        "principal": request.identity,
        "ip": request.source,
        "toIp": "127.0.0.1",
        "port": books.tcp if request.tcp else books.other if other else books.http,
        "sni": request.sni if request.identity else "",
        "remoteIp": request.headers.get("x-forwarded-for", ""),
    }
    query = urllib.parse.urlencode({"proxyID": "books-0.shop", "request": json.dumps(authz_request)})
    verdict = json.loads(books.plane.get(f"/debug/authz?{query}"))
    assert verdict["why"]
    return bool(verdict["decision"] == "allowed")


def with_ports(books: GuardedWorkload, policy: Policy) -> Policy:
    """Return the policy with the ports of the workload."""
    return policy[0], policy[1].replace("'{http}'", f"'{books.http}'").replace("'{tcp}'", f"'{books.tcp}'")


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_authorization_policies(books: GuardedWorkload, case: Case) -> None:
    books.apply(*(with_ports(books, policy) for policy in case.policies), annotations=case.annotations)
    assert [str(request) for request in case.passes if not passes(books, request)] == [], "should be allowed"
    assert [str(request) for request in case.fails if passes(books, request)] == [], "should be denied"
    decisions = [
        (request, request in case.passes)
        for request in (*case.passes, *case.fails)
        if _UNUSUAL.isdisjoint(request.path)
    ]
    assert [str(request) for request, is_allowed in decisions if predicts(books, request) is not is_allowed] == [], (
        "the debug page should agree"
    )


def test_number_of_cases() -> None:
    rows = [request for case in CASES for request in (*case.passes, *case.fails)]
    assert len(rows) >= 150
    assert sum(request.tcp for request in rows) >= 40


# -- external authorizers --------------------------------------------------------------------------------------------------


def custom(provider: str, rules: str) -> Policy:
    return "AuthorizationPolicy", f"action: CUSTOM, provider: {{name: {provider}}}, rules: {rules}"


def test_grpc_authorizer_checks_matching_requests(books: GuardedWorkload) -> None:
    books.apply(custom("judge", operation(f"paths: ['/vip/*'], ports: ['{books.http}']")))
    books.authorizer.requests.clear()
    assert passes(books, get("/open"))
    assert books.authorizer.requests == []
    assert not passes(books, get("/vip/a"))
    assert passes(books, get("/vip/b", x_ticket="good"))
    assert books.authorizer.requests == ["/vip/a", "/vip/b"]


def test_grpc_authorizer_checks_connections(books: GuardedWorkload) -> None:
    books.apply(custom("judge", operation(f"ports: ['{books.tcp}']")))
    assert not passes(books, tcp())
    assert passes(books, tcp()._replace(source="127.0.0.2"))


def test_http_authorizer_denies_requests(books: GuardedWorkload) -> None:
    books.apply(custom("refusing", operation("paths: ['/vip/*']")))
    assert passes(books, get("/open"))
    assert not passes(books, get("/vip/a"))
    assert passes(books, tcp()), "HTTP authorizers do not check connections"


def test_deny_wins_over_the_authorizer(books: GuardedWorkload) -> None:
    books.apply(custom("judge", "[{}]"), deny(operation("paths: [/never]")))
    assert passes(books, get("/a", x_ticket="good"))
    assert not passes(books, get("/never", x_ticket="good"))


def test_unavailable_authorizer_denies_requests(books: GuardedWorkload) -> None:
    books.apply(custom("ghost", operation(f"paths: ['/vip/*'], ports: ['{books.http}']")))
    assert passes(books, get("/open"))
    assert not passes(books, get("/vip/a", x_ticket="good"))


def test_denial_has_a_body_and_a_metric(books: GuardedWorkload) -> None:
    books.apply(deny(operation("paths: [/no]")))
    assert "RBAC: access denied" in books.client.answer(books.http, get("/no"))
    assert sum(books.envoy.stats("rbac.*denied").values()) > 0


# -- mutual TLS ------------------------------------------------------------------------------------------------------------


def test_strict_refuses_plaintext_and_permissive_accepts_it(books: GuardedWorkload) -> None:
    books.apply(("PeerAuthentication", "mtls: {mode: STRICT}"))
    assert passes(books, get())
    assert passes(books, tcp())
    assert not passes(books, get(identity=ANONYMOUS))
    assert not passes(books, tcp(ANONYMOUS))
    books.apply(("PeerAuthentication", "mtls: {mode: PERMISSIVE}"))
    assert passes(books, get(identity=ANONYMOUS))


def test_server_sees_the_identity_of_its_client(books: GuardedWorkload) -> None:
    books.apply()
    assert passes(books, get(identity=CRON))
    assert f"URI={CRON}" in books.backend.requests[-1].headers["x-forwarded-client-cert"]
