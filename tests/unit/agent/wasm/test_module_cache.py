"""Wasm modules that the agent fetches from images and over HTTP: checks, limits and caching."""

from __future__ import annotations

import hashlib
import itertools
import pathlib
import socket

import pytest

from pilot.agent.agent_settings import AgentSettings
from pilot.agent.wasm.http_fetcher import FetchError
from pilot.agent.wasm.module_cache import ALWAYS, IF_NOT_PRESENT, ModuleSource, build_module_cache
from pilot.settings.parse import load_sections
from testing.servers.image_registry import MODULE, Registry, Reply, archive, digest
from tests.unit.agent.wasm.conftest import FIRST, LARGEST, SECOND, Counts, Modules


@pytest.fixture(params=["no login", "token", "basic"])
def login(request: pytest.FixtureRequest) -> str:
    return str(request.param)


# -- images ----------------------------------------------------------------------------------------------------------------


def test_image_is_pulled_with_the_required_login(tmp_path: pathlib.Path, login: str) -> None:
    registry = Registry("" if login == "no login" else "lab:secret", basic=login == "basic")
    try:
        modules = Modules(tmp_path, registry)
        registry.push("lab/x", "1", archive(FIRST))
        assert modules.get("oci://HOST/lab/x:1", secret=registry.docker_config()) == FIRST
        if login != "no login":
            wrong_login = f'{{"auths": {{"{registry.host}": {{"username": "x", "password": "y"}}}}}}'
            for secret in (wrong_login, "", '{"auths": {}}', "no JSON"):
                assert modules.fails("oci://HOST/lab/x:2", secret=secret)
    finally:
        registry.stop()


def test_image_formats(modules: Modules) -> None:
    registry = modules.registry
    registry.push("a", "archive", archive(FIRST))
    module_digest = registry.push("a", "module", SECOND, MODULE)
    windows_digest = registry.push("a", "windows", archive(FIRST))
    index_digest = registry.push_index("a", "list", ("windows/amd64", windows_digest), ("linux/amd64", module_digest))
    assert modules.get("oci://HOST/a:archive") == FIRST
    assert modules.get("oci://HOST/a:module") == SECOND
    assert modules.get("oci://HOST/a:list") == SECOND
    assert modules.get(f"oci://HOST/a@{index_digest}") == SECOND
    assert (
        modules.get("oci://HOST/a:list", checksum=module_digest.removeprefix("sha256:"), policy=ALWAYS, version="2")
        == SECOND
    )


@pytest.mark.parametrize(
    ("layer", "kind", "reason"),
    [
        (archive(FIRST, "other.wasm"), "", "no file plugin.wasm"),
        (b"no archive", "", "cannot unpack"),
        (archive(b"\0" * 100_000), "", "larger than 20000 bytes"),
        (archive(b"no module"), "", "not a Wasm module"),
        (archive(FIRST), "application/json", "no layer with a Wasm module"),
    ],
)
def test_image_without_a_module_is_rejected(modules: Modules, layer: bytes, kind: str, reason: str) -> None:
    modules.registry.push("a", "1", layer, *((kind,) if kind else ()))
    assert reason in modules.fails("oci://HOST/a:1")


def test_digest_mismatch_is_rejected(modules: Modules) -> None:
    registry = modules.registry
    manifest_digest = registry.push("a", "1", archive(FIRST))
    registry.replies[f"/v2/a/blobs/{digest(archive(FIRST))}"] = Reply(archive(SECOND))
    assert "a layer of" in modules.fails("oci://HOST/a:1")
    registry.replies[f"/v2/a/manifests/{manifest_digest}"] = Reply(b"{}")
    assert "the manifest of" in modules.fails(f"oci://HOST/a@{manifest_digest}")
    assert "the checksum of" in modules.fails("oci://HOST/a:1", checksum="ab" * 32)
    assert modules.counts.counts["checksum_mismatch"] == 3


@pytest.mark.parametrize("url", ["oci://HOST/gone:1", "http://HOST/gone", "ftp://HOST/x", "oci://HOST/A", "http:///x"])
def test_missing_module_fails_without_retry(modules: Modules, url: str) -> None:
    assert modules.fails(url)
    assert not modules.sleeps


# -- HTTP ------------------------------------------------------------------------------------------------------------------


def test_http_module_is_verified_by_checksum(modules: Modules) -> None:
    modules.registry.replies["/x.wasm"] = Reply(FIRST)
    assert modules.get("http://HOST/x.wasm", checksum=hashlib.sha256(FIRST).hexdigest()) == FIRST
    assert "the checksum of" in modules.fails("http://HOST/x.wasm", checksum="ab" * 32)


def test_redirects_are_followed_up_to_a_limit(modules: Modules) -> None:
    modules.registry.replies |= {
        "/a": Reply(b"", 302, (("Location", "/b"),)),
        "/b": Reply(FIRST),
        "/loop": Reply(b"", 307, (("Location", "/loop"),)),
    }
    assert modules.get("http://HOST/a") == FIRST
    assert "redirects" in modules.fails("http://HOST/loop")


def test_oversized_response_is_rejected(modules: Modules) -> None:
    modules.registry.replies["/x"] = Reply(b"\0asm" + b"\0" * LARGEST)
    assert "larger than 20000 bytes" in modules.fails("http://HOST/x")


def test_temporary_failure_is_retried(modules: Modules) -> None:
    modules.registry.replies["/x"] = Reply(b"", 503)
    assert "returned status 503" in modules.fails("http://HOST/x")
    assert modules.sleeps == [0.1, 0.2]
    assert modules.registry.request_counts["/x"] == 3


def test_variable_limits_the_time_of_a_request(tmp_path: pathlib.Path, registry: Registry) -> None:
    registry.replies["/x"] = Reply(FIRST)
    variables = {"WASM_HTTP_REQUEST_MAX_RETRIES": "0", "ALLOWED_CIDRS_IN_WASM_FETCH": "127.0.0.1/32"}
    source = ModuleSource(f"http://{registry.host}/x", "r", "1", "", "", "")
    for timeout in ("0s", "20s"):
        loaded = load_sections(AgentSettings(), (), {**variables, "WASM_HTTP_REQUEST_TIMEOUT": timeout})
        cache = build_module_cache(loaded.settings.modules, str(tmp_path), Counts())
        if timeout == "0s":
            with pytest.raises(FetchError, match="timed out"):
                cache.fetch(source, 20)
        else:
            assert cache.fetch(source, 20).read_bytes() == FIRST


def test_request_that_times_out_is_retried(tmp_path: pathlib.Path, registry: Registry) -> None:
    modules = Modules(tmp_path, registry, seconds=0)
    assert modules.fails("http://HOST/module.wasm") == "timed out"
    assert len(modules.sleeps) == 2


@pytest.mark.parametrize(
    ("size", "limit", "succeeds"), [(8, "8", True), (9, "8", False), (9, "", True), (9, "8MB", True)]
)
def test_variable_limits_the_size_of_modules(
    tmp_path: pathlib.Path, registry: Registry, size: int, limit: str, succeeds: bool
) -> None:
    """Release note wasm-configurable-size-limit."""
    registry.replies["/x"] = Reply(b"\0asm".ljust(size, b"\0"))
    variables = {"ISTIO_WASM_MAX_BINARY_SIZE_BYTES": limit, "ALLOWED_CIDRS_IN_WASM_FETCH": "127.0.0.1/32"}
    loaded = load_sections(AgentSettings(), (), variables)
    cache = build_module_cache(loaded.settings.modules, str(tmp_path), Counts())
    source = ModuleSource(f"http://{registry.host}/x", "r", "1", "", "", "")
    if succeeds:
        assert len(cache.fetch(source, 20).read_bytes()) == size
        assert limit == "8" or loaded.settings.modules.max_bytes == 256 << 20
    else:
        with pytest.raises(FetchError, match=f"larger than {limit} bytes"):
            cache.fetch(source, 20)
    assert [warning.partition(":")[0] for warning in loaded.warnings] == (
        ["environment variable ISTIO_WASM_MAX_BINARY_SIZE_BYTES is ignored"] if limit == "8MB" else []
    )


METADATA, INTERNAL = "169.254.169.254", "10.0.0.1"
LOOKUPS = {"metadata.example": METADATA, "internal.example": INTERNAL}


@pytest.mark.parametrize("target", [METADATA, INTERNAL, *LOOKUPS])
@pytest.mark.parametrize("hops", [0, 1, 2])
@pytest.mark.parametrize("source", ["http", "manifest", "layer", "token"])
def test_every_connection_of_a_fetch_is_checked(
    modules: Modules, monkeypatch: pytest.MonkeyPatch, source: str, hops: int, target: str
) -> None:
    """Release notes wasm-ssrf-redirect-dial-context and wasm-ssrf-bearer-realm: addresses and names, before and after
    redirects, from files, images and the servers of tokens."""
    lookup = socket.getaddrinfo
    monkeypatch.setattr(
        socket, "getaddrinfo", lambda host, *args, **more: lookup(LOOKUPS.get(host, host), *args, **more)
    )
    registry = modules.registry
    registry.push("a", "1", archive(FIRST))
    urls = [f"http://{registry.host}/hop{hop}" for hop in range(hops)] + [f"http://{target}/x"]
    registry.replies |= {
        url.removeprefix(f"http://{registry.host}"): Reply(b"", 302, (("Location", following),))
        for url, following in itertools.pairwise(urls)
    }
    if source == "http":
        reason = modules.fails(urls[0])
    else:
        challenge = (("WWW-Authenticate", f'Bearer realm="{urls[0]}"'),)
        path = f"/v2/a/blobs/{digest(archive(FIRST))}" if source == "layer" else "/v2/a/manifests/1"
        registry.replies[path] = (
            Reply(b"", 401, challenge) if source == "token" else Reply(b"", 307, (("Location", urls[0]),))
        )
        reason = modules.fails("oci://HOST/a:1")
    address = LOOKUPS.get(target, target)
    assert reason.endswith(f": {address} is {'link-local' if address == METADATA else 'not a public address'}")
    assert modules.sleeps == []


@pytest.mark.parametrize("url", ["http://HOST/x", "oci://HOST/a:1"])
def test_private_addresses_are_blocked_by_default(tmp_path: pathlib.Path, registry: Registry, url: str) -> None:
    modules = Modules(tmp_path, registry, allowed="")
    assert "not a public address" in modules.fails(url)
    assert not registry.request_counts


def test_plaintext_registries_are_blocked_by_default(tmp_path: pathlib.Path, registry: Registry) -> None:
    registry.push("a", "1", archive(FIRST))
    assert "cannot fetch" in Modules(tmp_path, registry, insecure=False).fails("oci://HOST/a:1")
    assert not registry.request_counts["/v2/a/manifests/1"]


# -- caching -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("tag", "policy", "version", "fetches"),
    [
        ("1", "", "2", 1),
        ("latest", "", "1", 1),
        ("latest", "", "2", 2),
        ("latest", IF_NOT_PRESENT, "2", 1),
        ("1", ALWAYS, "1", 1),
        ("1", ALWAYS, "2", 2),
    ],
)
def test_pull_policy_decides_on_fetching_a_tag(
    modules: Modules, tag: str, policy: str, version: str, fetches: int
) -> None:
    modules.registry.push("a", tag, archive(FIRST))
    for resource_version in ("1", version):
        assert modules.get(f"oci://HOST/a:{tag}", version=resource_version, policy=policy) == FIRST
    assert modules.registry.request_counts[f"/v2/a/manifests/{tag}"] == fetches


def test_moved_tag_resolves_to_the_new_module(modules: Modules) -> None:
    modules.registry.push("a", "1", archive(FIRST))
    assert modules.get("oci://HOST/a:1", policy=ALWAYS) == FIRST
    modules.registry.push("a", "1", archive(SECOND))
    assert modules.get("oci://HOST/a:1", policy=ALWAYS) == FIRST
    assert modules.get("oci://HOST/a:1", policy=ALWAYS, version="2") == SECOND


def test_image_by_digest_is_fetched_once(modules: Modules) -> None:
    manifest_digest = modules.registry.push("a", "1", archive(FIRST))
    for version in ("1", "2"):
        assert modules.get(f"oci://HOST/a@{manifest_digest}", version=version, policy=ALWAYS) == FIRST
    assert modules.registry.request_counts[f"/v2/a/manifests/{manifest_digest}"] == 1
    assert modules.counts.counts["hit"] == modules.counts.counts["miss"] == 1


def test_unused_modules_are_purged(modules: Modules, tmp_path: pathlib.Path) -> None:
    modules.registry.replies |= {"/x": Reply(FIRST), "/y": Reply(SECOND)}
    modules.get("http://HOST/x")
    modules.now = 50
    modules.get("http://HOST/y")
    modules.files.purge(60)
    assert len(list(tmp_path.rglob("*.wasm"))) == 2
    modules.now = 80
    modules.files.purge(60)
    assert [path.read_bytes() for path in tmp_path.rglob("*.wasm")] == [SECOND]
    assert modules.counts.counts["kept"] == 1
    modules.get("http://HOST/x")
    assert modules.registry.request_counts["/x"] == 2


@pytest.mark.parametrize(
    ("content", "succeeds"),
    [
        ('{"auths": {"HOST": {"auth": "bGFiOnNlY3JldA=="}}}', True),
        ('{"auths": {"other": {"auth": "bGFiOnNlY3JldA=="}}}', False),
        ("no JSON", False),
        (None, False),
    ],
)
def test_local_docker_login_is_the_fallback(tmp_path: pathlib.Path, content: str | None, succeeds: bool) -> None:
    registry = Registry("lab:secret")
    try:
        modules = Modules(tmp_path, registry)
        registry.push("a", "1", archive(FIRST))
        if content is not None:
            (tmp_path / "config.json").write_text(content.replace("HOST", registry.host))
        if succeeds:
            assert modules.get("oci://HOST/a:1") == FIRST
        else:
            modules.fails("oci://HOST/a:1")
    finally:
        registry.stop()
