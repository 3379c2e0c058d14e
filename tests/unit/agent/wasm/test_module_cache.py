"""Wasm modules that the agent fetches from images and over HTTP: checks, limits, caching, and replacement filters."""

from __future__ import annotations

import collections
import hashlib
import pathlib
import ssl
from collections.abc import Iterator

import pytest
from envoy.config.core.v3 import extension_pb2
from envoy.extensions.filters.http.rbac.v3 import rbac_pb2 as http_rbac_pb2
from envoy.extensions.filters.http.wasm.v3 import wasm_pb2 as http_wasm_pb2
from envoy.extensions.filters.network.rbac.v3 import rbac_pb2 as network_rbac_pb2
from envoy.extensions.filters.network.wasm.v3 import wasm_pb2 as network_wasm_pb2
from envoy.service.discovery.v3 import discovery_pb2
from google.protobuf import json_format
from udpa.type.v1 import typed_struct_pb2

from pilot.agent.wasm.extension_rewriter import ExtensionRewriter
from pilot.agent.wasm.extension_stream import ExtensionStream
from pilot.agent.wasm.http_fetcher import FetchError, HttpFetcher
from pilot.agent.wasm.image_registry import ImageReference, parse_image
from pilot.agent.wasm.module_cache import ALWAYS, IF_NOT_PRESENT, ModuleCache, ModuleSource
from pilot.config.extensions.traffic_extension import EnvVar, VmConfig, WasmConfig
from pilot.envoy.extension_config import build_extension_config
from pilot.lib.address_rules import AddressRules
from pilot.lib.xds_types import EXTENSION
from testing.mesh.wasm_module import module
from testing.servers.image_registry import MODULE, Registry, Reply, archive, digest

FIRST, SECOND = module("one"), module("two")
LARGEST = 20_000


class Counts:
    """Counts module events."""

    def __init__(self) -> None:
        self.counts: collections.Counter[str] = collections.Counter()

    def module_looked_up(self, hit: bool) -> None:
        self.counts["hit" if hit else "miss"] += 1

    def module_fetched(self, result: str) -> None:
        self.counts[result] += 1

    def modules_cached(self, count: int) -> None:
        self.counts["kept"] = count

    def extension_converted(self, result: str) -> None:
        self.counts[f"converted {result}"] += 1


class Modules:
    """A module cache and its registry. `now` is a manual clock; `sleeps` records the waits."""

    def __init__(
        self, folder: pathlib.Path, registry: Registry, allowed: str = "127.0.0.0/8", insecure: bool = True
    ) -> None:
        self.registry, self.counts, self.now, self.sleeps = registry, Counts(), 0.0, list[float]()
        context = ssl.create_default_context()
        unverified = ssl.create_default_context()
        unverified.check_hostname, unverified.verify_mode = False, ssl.CERT_NONE
        fetcher = HttpFetcher(AddressRules((allowed,) if allowed else ()), context, unverified, LARGEST)
        hosts = frozenset((registry.host,)) if insecure else frozenset[str]()
        self.files = ModuleCache(
            folder, fetcher, self.counts, hosts, 2, lambda: self.now, self.sleeps.append, folder / "config.json"
        )

    def get(
        self, url: str, resource: str = "r", version: str = "1", checksum: str = "", policy: str = "", secret: str = ""
    ) -> bytes:
        source = ModuleSource(url.replace("HOST", self.registry.host), resource, version, checksum, policy, secret)
        return self.files.fetch(source, 20).read_bytes()

    def fails(self, url: str, **more: str) -> str:
        with pytest.raises(FetchError) as error:
            self.get(url, **more)
        return str(error.value)


@pytest.fixture(params=["no login", "token", "basic"])
def login(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def registry() -> Iterator[Registry]:
    server = Registry()
    yield server
    server.stop()


@pytest.fixture
def modules(tmp_path: pathlib.Path, registry: Registry) -> Modules:
    return Modules(tmp_path, registry)


# -- references ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "image"),
    [
        ("r.example.com/a/b:1.2", ImageReference("r.example.com", "a/b", "1.2")),
        ("localhost/a", ImageReference("localhost", "a")),
        ("r:5000/a", ImageReference("r:5000", "a")),
        ("a", ImageReference("index.docker.io", "library/a")),
        ("a/b:x", ImageReference("index.docker.io", "a/b", "x")),
        ("docker.io/a", ImageReference("index.docker.io", "library/a")),
        (f"r.io/a:x@sha256:{'0' * 64}", ImageReference("r.io", "a", "x", f"sha256:{'0' * 64}")),
    ],
)
def test_parsing_of_image_references(text: str, image: ImageReference) -> None:
    assert parse_image(text) == image


@pytest.mark.parametrize(
    "text", ["", "r.io/", "r.io/A", "r.io/a:", "r.io/a:-", "r.io/a@sha256:0", "r.io/a@", "r.io/../a", "r.io/a b"]
)
def test_invalid_image_reference_is_rejected(text: str) -> None:
    with pytest.raises(ValueError, match="is not a valid image reference"):
        parse_image(text)


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
    assert modules.registry.asked["/x"] == 3


@pytest.mark.parametrize("url", ["http://HOST/x", "oci://HOST/a:1"])
def test_private_addresses_are_blocked_by_default(tmp_path: pathlib.Path, registry: Registry, url: str) -> None:
    modules = Modules(tmp_path, registry, allowed="")
    assert "not a public address" in modules.fails(url)
    assert not registry.asked


def test_plaintext_registries_are_blocked_by_default(tmp_path: pathlib.Path, registry: Registry) -> None:
    registry.push("a", "1", archive(FIRST))
    assert "cannot fetch" in Modules(tmp_path, registry, insecure=False).fails("oci://HOST/a:1")
    assert not registry.asked["/v2/a/manifests/1"]


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
    assert modules.registry.asked[f"/v2/a/manifests/{tag}"] == fetches


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
    assert modules.registry.asked[f"/v2/a/manifests/{manifest_digest}"] == 1
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
    assert modules.registry.asked["/x"] == 2


# -- extension configuration -------------------------------------------------------------------------------------------


def response(config: extension_pb2.TypedExtensionConfig, delta: bool) -> bytes:
    if delta:
        delta_response = discovery_pb2.DeltaDiscoveryResponse(type_url=EXTENSION, nonce="n")
        delta_response.resources.add(name=config.name, version="v").resource.Pack(config)
        return delta_response.SerializeToString()
    full = discovery_pb2.DiscoveryResponse(type_url=EXTENSION, nonce="n", version_info="v")
    full.resources.add().Pack(config)
    return full.SerializeToString()


def unpack_config(raw: bytes, delta: bool) -> extension_pb2.TypedExtensionConfig:
    config = extension_pb2.TypedExtensionConfig()
    if delta:
        assert discovery_pb2.DeltaDiscoveryResponse.FromString(raw).resources[0].resource.Unpack(config)
    else:
        assert discovery_pb2.DiscoveryResponse.FromString(raw).resources[0].Unpack(config)
    return config


def wasm(
    modules: Modules, url: str = "http://HOST/x", secret: str | None = None, **more: str
) -> extension_pb2.TypedExtensionConfig:
    config = WasmConfig(
        url=url.replace("HOST", modules.registry.host), vm_config=VmConfig((EnvVar("A", value="b"),)), **more
    )
    return build_extension_config("r", "a.x", config, "1", secret)


def rewrite_response(modules: Modules, raw: bytes, delta: bool) -> bytes:
    return ExtensionStream(ExtensionRewriter(modules.files, modules.counts), delta).rewrite(raw)


@pytest.mark.parametrize("delta", [True, False])
@pytest.mark.parametrize("kind", ["HTTP", "NETWORK"])
def test_remote_module_becomes_a_file(modules: Modules, delta: bool, kind: str) -> None:
    modules.registry.replies["/x"] = Reply(FIRST)
    config = unpack_config(rewrite_response(modules, response(wasm(modules, type=kind), delta), delta), delta)
    wasm_config = network_wasm_pb2.Wasm() if kind == "NETWORK" else http_wasm_pb2.Wasm()
    assert config.typed_config.Unpack(wasm_config)
    assert pathlib.Path(wasm_config.config.vm_config.code.local.filename).read_bytes() == FIRST
    assert dict(wasm_config.config.vm_config.environment_variables.key_values) == {"A": "b"}
    assert config.name == "r"


@pytest.mark.parametrize(("strategy", "has_rules"), [("FAIL_OPEN", False), ("FAIL_CLOSE", True), ("FAIL_RELOAD", True)])
@pytest.mark.parametrize("kind", ["HTTP", "NETWORK"])
def test_unavailable_module_is_replaced_by_a_filter(
    modules: Modules, strategy: str, has_rules: bool, kind: str
) -> None:
    config = unpack_config(
        rewrite_response(modules, response(wasm(modules, type=kind, fail_strategy=strategy), True), True), True
    )
    rbac = network_rbac_pb2.RBAC() if kind == "NETWORK" else http_rbac_pb2.RBAC()
    assert config.typed_config.Unpack(rbac)
    assert rbac.HasField("rules") is has_rules
    statistics = rbac.stat_prefix if kind == "NETWORK" else rbac.rules_stat_prefix
    assert statistics == ("wasm-default-deny" if has_rules else "wasm-default-allow")


def test_module_without_its_pull_secret_is_not_fetched(modules: Modules) -> None:
    modules.registry.push("a", "1", archive(FIRST))
    config = unpack_config(rewrite_response(modules, response(wasm(modules, "oci://HOST/a:1", secret=""), True), True), True)
    assert config.typed_config.Is(http_rbac_pb2.RBAC.DESCRIPTOR)
    assert not modules.registry.asked


def test_typed_struct_module_becomes_a_file(modules: Modules) -> None:
    modules.registry.replies["/x"] = Reply(FIRST)
    plain = wasm(modules)
    wasm_config = http_wasm_pb2.Wasm()
    assert plain.typed_config.Unpack(wasm_config)
    struct = typed_struct_pb2.TypedStruct(type_url=plain.typed_config.type_url)
    wasm_config.config.ClearField("configuration")
    struct.value.update(json_format.MessageToDict(wasm_config))
    plain.typed_config.Pack(struct)
    config = unpack_config(rewrite_response(modules, response(plain, True), True), True)
    assert config.typed_config.Unpack(wasm_config)
    assert wasm_config.config.vm_config.code.HasField("local")


@pytest.mark.parametrize("delta", [True, False])
def test_unavailable_module_is_retried(modules: Modules, delta: bool) -> None:
    stream = ExtensionStream(ExtensionRewriter(modules.files, modules.counts), delta)
    assert unpack_config(stream.rewrite(response(wasm(modules), delta)), delta).typed_config.Is(http_rbac_pb2.RBAC.DESCRIPTOR)
    assert stream.has_pending
    assert stream.retry_pending() == b""
    modules.registry.replies["/x"] = Reply(FIRST)
    assert unpack_config(stream.retry_pending(), delta).typed_config.Is(http_wasm_pb2.Wasm.DESCRIPTOR)
    assert not stream.has_pending


def test_removed_or_replaced_module_is_not_retried(modules: Modules) -> None:
    stream = ExtensionStream(ExtensionRewriter(modules.files, modules.counts), True)
    stream.rewrite(response(wasm(modules), True))
    stream.rewrite(
        discovery_pb2.DeltaDiscoveryResponse(type_url=EXTENSION, removed_resources=["r"]).SerializeToString()
    )
    assert not stream.has_pending
    stream.rewrite(response(wasm(modules), True))
    stream.rewrite(response(wasm(modules, "file:///x.wasm"), True))
    assert not stream.has_pending


def test_missing_pull_secret_causes_no_retry(modules: Modules) -> None:
    stream = ExtensionStream(ExtensionRewriter(modules.files, modules.counts), True)
    stream.rewrite(response(wasm(modules, "oci://HOST/a:1", secret=""), True))
    assert not stream.has_pending


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


def test_other_resources_stay_unchanged(modules: Modules) -> None:
    other = extension_pb2.TypedExtensionConfig(name="r")
    other.typed_config.Pack(http_rbac_pb2.RBAC())
    for raw in (response(wasm(modules, "file:///x.wasm"), True), response(other, True), b"\xff\xff", b""):
        assert rewrite_response(modules, raw, True) == raw
