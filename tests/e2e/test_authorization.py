"""Who gets through: requests and connections to a stock Envoy under AuthorizationPolicies, and what becomes of each."""

from __future__ import annotations

import json
import urllib.parse
from collections.abc import Iterator, Mapping
from typing import NamedTuple

import pytest

from testing.clients.mesh_client import MeshRequest
from testing.processes.guarded_workload import Guarded, Policy

TD = "spiffe://cluster.local/ns"
WEB, EVE, CRON, OTHER = f"{TD}/shop/sa/web", f"{TD}/shop/sa/eve", f"{TD}/jobs/sa/cron.io", f"{TD}/other/sa/web"
OLD = "spiffe://old.td/ns/shop/sa/web"
NOBODY = ""
MESH = "{trustDomainAliases: [old.td], pathNormalization: {normalization: DECODE_AND_MERGE_SLASHES}}"


class Case(NamedTuple):
    """Policies, and what they let through: an ask gets `passes`, or not."""

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


def tcp(by: str = WEB, **how: str) -> MeshRequest:
    return MeshRequest(identity=by, tcp=True, **how)  # type: ignore[arg-type]


def get(path: str = "/", by: str = WEB, **headers: str) -> MeshRequest:
    """A request; `sni=\"other\"` stands for one to the second port of HTTP."""
    return MeshRequest(
        identity=by, path=path, headers={name.replace("_", "-"): value for name, value in headers.items()}
    )


CASES = [
    Case("no policy", (), (get(), get(by=NOBODY), tcp(), tcp(NOBODY)), ()),
    Case("an ALLOW without rules", (("AuthorizationPolicy", ""),), (), (get(), get(by=NOBODY), tcp())),
    Case("an ALLOW of everything", (allow("[{}]"),), (get(), get(by=NOBODY), tcp(), tcp(NOBODY)), ()),
    Case("a DENY of everything comes before any ALLOW", (allow("[{}]"), deny("[{}]")), (), (get(), tcp())),
    Case(
        "principals",
        (allow(source("principals: [cluster.local/ns/shop/sa/web, '*/sa/cron.io']")),),
        (get(), get(by=CRON), get(by=OLD), tcp(), tcp(OLD)),
        (get(by=EVE), get(by=OTHER), get(by=NOBODY), tcp(EVE), tcp(NOBODY)),
    ),
    Case(
        "any principal",
        (allow(source("principals: ['*']")),),
        (get(), get(by=EVE), tcp(EVE)),
        (get(by=NOBODY), tcp(NOBODY)),
    ),
    Case(
        "all but a principal",
        (allow(source("notPrincipals: [cluster.local/ns/shop/sa/eve]")),),
        (get(), get(by=NOBODY), tcp()),
        (get(by=EVE), tcp(EVE)),
    ),
    Case(
        "a DENY of those without identity",
        (deny(source("notPrincipals: ['*']")),),
        (get(), tcp()),
        (get(by=NOBODY), tcp(NOBODY)),
    ),
    Case(
        "namespaces",
        (allow(source("namespaces: [sh*, jobs], notNamespaces: [jobs]")),),
        (get(), tcp()),
        (get(by=CRON), get(by=OTHER), tcp(OTHER)),
    ),
    Case(
        "CVE-2026-39350 dots in service accounts",
        (allow(source("serviceAccounts: [web, jobs/cron.io]")),),
        (get(), get(by=CRON), tcp(CRON)),
        (
            get(by=EVE),
            get(by=OTHER),
            get(by=f"{TD}/jobs/sa/cronXio"),
            get(by=f"{TD}/jobs/sa/cron-io"),
            tcp(f"{TD}/jobs/sa/cronXio"),
        ),
    ),
    Case(
        "CVE-2026-39350 dots in service accounts that are denied",
        (deny(source("serviceAccounts: [jobs/cron.io]")),),
        (get(by=f"{TD}/jobs/sa/cronXio"), get()),
        (get(by=CRON), tcp(CRON)),
    ),
    Case(
        "trust domains",
        (allow(source("trustDomains: [cluster.local]")),),
        (get(), get(by=OLD), tcp(OLD)),
        (get(by=NOBODY), tcp(NOBODY)),
    ),
    Case(
        "all but a trust domain",
        (deny(source("notTrustDomains: ['*.local']")),),
        (get(), tcp()),
        (get(by=OLD), tcp(OLD)),
    ),
    Case(
        "addresses of peers",
        (allow(source("ipBlocks: [127.0.0.0/30], notIpBlocks: [127.0.0.2]")),),
        (get(), tcp()),
        (get()._replace(source="127.0.0.2"), get()._replace(source="127.0.0.9"), tcp()._replace(source="127.0.0.2")),
    ),
    Case(
        "addresses of clients behind proxies",
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
        "paths, exact, by prefix and by suffix",
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
        "hosts that are allowed",
        (allow(operation("hosts: [books.shop, 'books.shop:*'], notHosts: ['*:99']")),),
        (get(), get()._replace(host="BOOKS.shop"), get()._replace(host="books.shop:80")),
        (get()._replace(host="other.shop"), get()._replace(host="books.shop:99"), tcp()),
    ),
    Case("ports", (allow(operation("ports: ['{http}', '{tcp}']")),), (get(), tcp()), (get(sni="other"),)),
    Case("all but a port", (allow(operation("notPorts: ['{tcp}']")),), (get(), get(sni="other")), (tcp(),)),
    Case(
        "a DENY of what only HTTP has, without a port, denies TCP too",
        (deny(operation("methods: [DELETE]")),),
        (get(),),
        (get()._replace(method="DELETE"), tcp()),
    ),
    Case(
        "a DENY of what only HTTP has, on its port, leaves TCP alone",
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
        "a header that is there",
        (deny(when("request.headers[x-debug]", "values: ['*']")),),
        (get(),),
        (get(x_debug="1"),),
    ),
    Case(
        "the name in the handshake",
        (allow(when("connection.sni", "values: ['*.shop']")),),
        (get(), tcp()),
        (get(by=NOBODY), get()._replace(sni="x.y"), tcp()._replace(sni="x.y")),
    ),
    Case("the port as a condition", (allow(when("destination.port", "values: ['{tcp}']")),), (tcp(),), (get(),)),
    Case(
        "the address as a condition",
        (allow(when("source.ip", "notValues: [127.0.0.2]")),),
        (get(), tcp()),
        (get()._replace(source="127.0.0.2"), tcp()._replace(source="127.0.0.2")),
    ),
    Case(
        "the client's address as a condition",
        (deny(when("remote.ip", "values: [192.0.2.0/24]")),),
        (get(),),
        (get(x_forwarded_for="192.0.2.1"),),
    ),
    Case(
        "the namespace as a condition",
        (allow(when("source.namespace", "values: [shop]")),),
        (get(), tcp()),
        (get(by=CRON), tcp(CRON)),
    ),
    Case(
        "the principal as a condition",
        (deny(when("source.principal", "values: [old.td/ns/shop/sa/web]")),),
        (get(by=EVE), tcp(EVE)),
        (get(), get(by=OLD), tcp(OLD)),
    ),
    Case("the own address as a condition", (allow(when("destination.ip", "values: [127.0.0.1]")),), (get(), tcp()), ()),
    Case(
        "sources, operations and conditions of one rule together",
        (
            allow(
                "[{from: [{source: {namespaces: [shop]}}, {source: {namespaces: [jobs]}}], to: [{operation: {methods: [GET], paths: ['/a*']}}, "
                "{operation: {methods: [POST]}}], when: [{key: 'request.headers[x]', values: ['1']}]}]"
            ),
        ),
        (get("/a", x="1"), get("/a", by=CRON, x="1"), get("/z", x="1")._replace(method="POST")),
        (get("/a"), get("/b", x="1"), get("/a", by=OTHER, x="1"), get("/a", x="2"), tcp()),
    ),
    Case(
        "several rules and policies",
        (allow(source("namespaces: [jobs]")), allow(operation("paths: [/open]"))),
        (get("/open"), get(by=CRON)),
        (get("/x"),),
    ),
    Case("a DENY that is tried", (deny("[{}]"),), (get(), tcp()), (), {"istio.io/dry-run": "true"}),
    Case(
        "an ALLOW that is tried, alone",
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
def books(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    found = Guarded(tmp_path_factory.mktemp("guarded"), MESH)
    try:
        yield found
        assert found.envoy.rejected() == {}, found.envoy.tail()
    finally:
        found.stop()


def passes(books: Guarded, ask: MeshRequest) -> bool:
    """Whether an ask gets to the workload: `sni` other stands for its second port of HTTP."""
    if ask.tcp:
        return books.client.connects(books.tcp, ask)
    port, headers = (books.other, {}) if ask.headers.get("sni") == "other" else (books.http, ask.headers)
    return books.client.status(port, ask._replace(headers=headers)) == 200


_UNUSUAL = frozenset("%#\\.")  # what Envoy changes of a path, or refuses


def said(books: Guarded, ask: MeshRequest) -> bool:
    """Whether the control plane says that an ask gets through."""
    other = ask.headers.get("sni") == "other"
    question = {
        "tcp": ask.tcp,
        "method": ask.method,
        "path": ask.path.replace("//", "/"),
        "host": ask.host,
        "headers": dict(ask.headers),
        "principal": ask.identity,
        "ip": ask.source,
        "toIp": "127.0.0.1",
        "port": books.tcp if ask.tcp else books.other if other else books.http,
        "sni": ask.sni if ask.identity else "",
        "remoteIp": ask.headers.get("x-forwarded-for", ""),
    }
    query = urllib.parse.urlencode({"proxyID": "books-0.shop", "request": json.dumps(question)})
    answer = json.loads(books.plane.get(f"/debug/authz?{query}"))
    assert answer["why"]
    return bool(answer["decision"] == "allowed")


def in_place(books: Guarded, policy: Policy) -> Policy:
    """A policy with the ports of the workload."""
    return policy[0], policy[1].replace("'{http}'", f"'{books.http}'").replace("'{tcp}'", f"'{books.tcp}'")


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_what_gets_through(books: Guarded, case: Case) -> None:
    books.apply(*(in_place(books, policy) for policy in case.policies), annotations=case.annotations)
    assert [str(ask) for ask in case.passes if not passes(books, ask)] == [], "should have passed"
    assert [str(ask) for ask in case.fails if passes(books, ask)] == [], "should not have passed"
    asks = [(ask, ask in case.passes) for ask in (*case.passes, *case.fails) if _UNUSUAL.isdisjoint(ask.path)]
    assert [str(ask) for ask, passed in asks if said(books, ask) is not passed] == [], "should have been told as it is"


def test_the_table_is_large_enough() -> None:
    rows = [ask for case in CASES for ask in (*case.passes, *case.fails)]
    assert len(rows) >= 150
    assert sum(ask.tcp for ask in rows) >= 40


# -- external authorizers --------------------------------------------------------------------------------------------------


def custom(provider: str, rules: str) -> Policy:
    return "AuthorizationPolicy", f"action: CUSTOM, provider: {{name: {provider}}}, rules: {rules}"


def test_an_authorizer_over_grpc_is_asked_about_what_its_rules_match(books: Guarded) -> None:
    books.apply(custom("judge", operation(f"paths: ['/vip/*'], ports: ['{books.http}']")))
    books.judge.asked.clear()
    assert passes(books, get("/open"))
    assert books.judge.asked == []
    assert not passes(books, get("/vip/a"))
    assert passes(books, get("/vip/b", x_ticket="good"))
    assert books.judge.asked == ["/vip/a", "/vip/b"]


def test_an_authorizer_over_grpc_is_asked_about_connections(books: Guarded) -> None:
    books.apply(custom("judge", operation(f"ports: ['{books.tcp}']")))
    assert not passes(books, tcp())
    assert passes(books, tcp()._replace(source="127.0.0.2"))


def test_an_authorizer_over_http_says_no(books: Guarded) -> None:
    books.apply(custom("refusing", operation("paths: ['/vip/*']")))
    assert passes(books, get("/open"))
    assert not passes(books, get("/vip/a"))
    assert passes(books, tcp()), "it is not asked about connections"


def test_what_an_authorizer_lets_through_may_still_be_denied(books: Guarded) -> None:
    books.apply(custom("judge", "[{}]"), deny(operation("paths: [/never]")))
    assert passes(books, get("/a", x_ticket="good"))
    assert not passes(books, get("/never", x_ticket="good"))


def test_where_the_authorizer_is_not_there_what_it_would_be_asked_is_denied(books: Guarded) -> None:
    books.apply(custom("ghost", operation(f"paths: ['/vip/*'], ports: ['{books.http}']")))
    assert passes(books, get("/open"))
    assert not passes(books, get("/vip/a", x_ticket="good"))


def test_a_denial_is_told_and_counted(books: Guarded) -> None:
    books.apply(deny(operation("paths: [/no]")))
    assert "RBAC: access denied" in books.client.answer(books.http, get("/no"))
    assert sum(books.envoy.stats("rbac.*denied").values()) > 0


# -- how peers connect -----------------------------------------------------------------------------------------------------


def test_strict_takes_no_plain_text_and_permissive_does(books: Guarded) -> None:
    books.apply(("PeerAuthentication", "mtls: {mode: STRICT}"))
    assert passes(books, get())
    assert passes(books, tcp())
    assert not passes(books, get(by=NOBODY))
    assert not passes(books, tcp(NOBODY))
    books.apply(("PeerAuthentication", "mtls: {mode: PERMISSIVE}"))
    assert passes(books, get(by=NOBODY))


def test_the_server_sees_the_identity_of_its_client(books: Guarded) -> None:
    books.apply()
    assert passes(books, get(by=CRON))
    assert f"URI={CRON}" in books.backend.requests[-1].headers["x-forwarded-client-cert"]
