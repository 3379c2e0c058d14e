"""Wasm modules that the agent fetches: from images and over HTTP, checked, limited, kept, and what stands in for those that cannot be had."""

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

BODY, OTHER = module("one"), module("two")
LARGEST = 20_000


class Counts:
    """Counts what happens to modules."""

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
    """Module files of a folder, and a registry that they may ask. `now` is the time, which only tests move; `slept` is how it was waited."""

    def __init__(
        self, folder: pathlib.Path, registry: Registry, allowed: str = "127.0.0.0/8", insecure: bool = True
    ) -> None:
        self.registry, self.counts, self.now, self.slept = registry, Counts(), 0.0, list[float]()
        context = ssl.create_default_context()
        unverified = ssl.create_default_context()
        unverified.check_hostname, unverified.verify_mode = False, ssl.CERT_NONE
        fetcher = HttpFetcher(AddressRules((allowed,) if allowed else ()), context, unverified, LARGEST)
        hosts = frozenset((registry.host,)) if insecure else frozenset[str]()
        self.files = ModuleCache(
            folder, fetcher, self.counts, hosts, 2, lambda: self.now, self.slept.append, folder / "config.json"
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
    made = Registry()
    yield made
    made.stop()


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
def test_a_reference_names_an_image(text: str, image: ImageReference) -> None:
    assert parse_image(text) == image


@pytest.mark.parametrize(
    "text", ["", "r.io/", "r.io/A", "r.io/a:", "r.io/a:-", "r.io/a@sha256:0", "r.io/a@", "r.io/../a", "r.io/a b"]
)
def test_what_names_no_image_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not a valid image reference"):
        parse_image(text)


# -- images ----------------------------------------------------------------------------------------------------------------


def test_an_image_is_pulled_with_the_proof_that_the_registry_asks_for(tmp_path: pathlib.Path, login: str) -> None:
    registry = Registry("" if login == "no login" else "lab:secret", basic=login == "basic")
    try:
        made = Modules(tmp_path, registry)
        registry.push("lab/x", "1", archive(BODY))
        assert made.get("oci://HOST/lab/x:1", secret=registry.docker_config()) == BODY
        if login != "no login":
            wrong = f'{{"auths": {{"{registry.host}": {{"username": "x", "password": "y"}}}}}}'
            for secret in (wrong, "", '{"auths": {}}', "no JSON"):
                assert made.fails("oci://HOST/lab/x:2", secret=secret)
    finally:
        registry.stop()


def test_an_image_is_of_a_container_or_the_module_itself_or_of_a_list(modules: Modules) -> None:
    registry = modules.registry
    registry.push("a", "archive", archive(BODY))
    module_digest = registry.push("a", "module", OTHER, MODULE)
    windows = registry.push("a", "windows", archive(BODY))
    listed = registry.push_index("a", "list", ("windows/amd64", windows), ("linux/amd64", module_digest))
    assert modules.get("oci://HOST/a:archive") == BODY
    assert modules.get("oci://HOST/a:module") == OTHER
    assert modules.get("oci://HOST/a:list") == OTHER
    assert modules.get(f"oci://HOST/a@{listed}") == OTHER
    assert (
        modules.get("oci://HOST/a:list", checksum=module_digest.removeprefix("sha256:"), policy=ALWAYS, version="2")
        == OTHER
    )


@pytest.mark.parametrize(
    ("layer", "kind", "says"),
    [
        (archive(BODY, "other.wasm"), "", "no file plugin.wasm"),
        (b"no archive", "", "cannot unpack"),
        (archive(b"\0" * 100_000), "", "larger than 20000 bytes"),
        (archive(b"no module"), "", "not a Wasm module"),
        (archive(BODY), "application/json", "no layer with a Wasm module"),
    ],
)
def test_an_image_without_a_module_is_refused(modules: Modules, layer: bytes, kind: str, says: str) -> None:
    modules.registry.push("a", "1", layer, *((kind,) if kind else ()))
    assert says in modules.fails("oci://HOST/a:1")


def test_what_is_not_what_its_digest_says_is_refused(modules: Modules) -> None:
    registry = modules.registry
    named = registry.push("a", "1", archive(BODY))
    registry.replies[f"/v2/a/blobs/{digest(archive(BODY))}"] = Reply(archive(OTHER))
    assert "a layer of" in modules.fails("oci://HOST/a:1")
    registry.replies[f"/v2/a/manifests/{named}"] = Reply(b"{}")
    assert "the manifest of" in modules.fails(f"oci://HOST/a@{named}")
    assert "the checksum of" in modules.fails("oci://HOST/a:1", checksum="ab" * 32)
    assert modules.counts.counts["checksum_mismatch"] == 3


@pytest.mark.parametrize("url", ["oci://HOST/gone:1", "http://HOST/gone", "ftp://HOST/x", "oci://HOST/A", "http:///x"])
def test_what_is_not_there_is_an_error_at_once(modules: Modules, url: str) -> None:
    assert modules.fails(url)
    assert not modules.slept


# -- HTTP ------------------------------------------------------------------------------------------------------------------


def test_a_module_over_http_is_checked_by_its_checksum(modules: Modules) -> None:
    modules.registry.replies["/x.wasm"] = Reply(BODY)
    assert modules.get("http://HOST/x.wasm", checksum=hashlib.sha256(BODY).hexdigest()) == BODY
    assert "the checksum of" in modules.fails("http://HOST/x.wasm", checksum="ab" * 32)


def test_redirects_are_followed_to_an_end(modules: Modules) -> None:
    modules.registry.replies |= {
        "/a": Reply(b"", 302, (("Location", "/b"),)),
        "/b": Reply(BODY),
        "/loop": Reply(b"", 307, (("Location", "/loop"),)),
    }
    assert modules.get("http://HOST/a") == BODY
    assert "redirects" in modules.fails("http://HOST/loop")


def test_a_large_answer_is_not_read_to_its_end(modules: Modules) -> None:
    modules.registry.replies["/x"] = Reply(b"\0asm" + b"\0" * LARGEST)
    assert "larger than 20000 bytes" in modules.fails("http://HOST/x")


def test_what_fails_for_the_time_being_is_tried_again(modules: Modules) -> None:
    modules.registry.replies["/x"] = Reply(b"", 503)
    assert "returned status 503" in modules.fails("http://HOST/x")
    assert modules.slept == [0.1, 0.2]
    assert modules.registry.asked["/x"] == 3


@pytest.mark.parametrize("url", ["http://HOST/x", "oci://HOST/a:1"])
def test_private_addresses_are_not_asked_unless_the_settings_allow_them(
    tmp_path: pathlib.Path, registry: Registry, url: str
) -> None:
    made = Modules(tmp_path, registry, allowed="")
    assert "not a public address" in made.fails(url)
    assert not registry.asked


def test_a_registry_is_spoken_to_in_plain_text_only_where_the_settings_say_so(
    tmp_path: pathlib.Path, registry: Registry
) -> None:
    registry.push("a", "1", archive(BODY))
    assert "cannot fetch" in Modules(tmp_path, registry, insecure=False).fails("oci://HOST/a:1")
    assert not registry.asked["/v2/a/manifests/1"]


# -- what is kept ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("tag", "policy", "version", "fetched"),
    [
        ("1", "", "2", 1),
        ("latest", "", "1", 1),
        ("latest", "", "2", 2),
        ("latest", IF_NOT_PRESENT, "2", 1),
        ("1", ALWAYS, "1", 1),
        ("1", ALWAYS, "2", 2),
    ],
)
def test_a_tag_is_looked_up_again_by_the_pull_policy(
    modules: Modules, tag: str, policy: str, version: str, fetched: int
) -> None:
    modules.registry.push("a", tag, archive(BODY))
    for said in ("1", version):
        assert modules.get(f"oci://HOST/a:{tag}", version=said, policy=policy) == BODY
    assert modules.registry.asked[f"/v2/a/manifests/{tag}"] == fetched


def test_a_tag_that_moved_leads_to_the_new_module(modules: Modules) -> None:
    modules.registry.push("a", "1", archive(BODY))
    assert modules.get("oci://HOST/a:1", policy=ALWAYS) == BODY
    modules.registry.push("a", "1", archive(OTHER))
    assert modules.get("oci://HOST/a:1", policy=ALWAYS) == BODY
    assert modules.get("oci://HOST/a:1", policy=ALWAYS, version="2") == OTHER


def test_an_image_by_digest_is_fetched_once(modules: Modules) -> None:
    named = modules.registry.push("a", "1", archive(BODY))
    for version in ("1", "2"):
        assert modules.get(f"oci://HOST/a@{named}", version=version, policy=ALWAYS) == BODY
    assert modules.registry.asked[f"/v2/a/manifests/{named}"] == 1
    assert modules.counts.counts["hit"] == modules.counts.counts["miss"] == 1


def test_what_nobody_asked_for_in_a_while_is_removed(modules: Modules, tmp_path: pathlib.Path) -> None:
    modules.registry.replies |= {"/x": Reply(BODY), "/y": Reply(OTHER)}
    modules.get("http://HOST/x")
    modules.now = 50
    modules.get("http://HOST/y")
    modules.files.purge(60)
    assert len(list(tmp_path.rglob("*.wasm"))) == 2
    modules.now = 80
    modules.files.purge(60)
    assert [path.read_bytes() for path in tmp_path.rglob("*.wasm")] == [OTHER]
    assert modules.counts.counts["kept"] == 1
    modules.get("http://HOST/x")
    assert modules.registry.asked["/x"] == 2


# -- what Envoy is given ---------------------------------------------------------------------------------------------------


def response(config: extension_pb2.TypedExtensionConfig, delta: bool) -> bytes:
    if delta:
        made = discovery_pb2.DeltaDiscoveryResponse(type_url=EXTENSION, nonce="n")
        made.resources.add(name=config.name, version="v").resource.Pack(config)
        return made.SerializeToString()
    full = discovery_pb2.DiscoveryResponse(type_url=EXTENSION, nonce="n", version_info="v")
    full.resources.add().Pack(config)
    return full.SerializeToString()


def given(raw: bytes, delta: bool) -> extension_pb2.TypedExtensionConfig:
    found = extension_pb2.TypedExtensionConfig()
    if delta:
        assert discovery_pb2.DeltaDiscoveryResponse.FromString(raw).resources[0].resource.Unpack(found)
    else:
        assert discovery_pb2.DiscoveryResponse.FromString(raw).resources[0].Unpack(found)
    return found


def wasm(
    modules: Modules, url: str = "http://HOST/x", secret: str | None = None, **more: str
) -> extension_pb2.TypedExtensionConfig:
    config = WasmConfig(
        url=url.replace("HOST", modules.registry.host), vm_config=VmConfig((EnvVar("A", value="b"),)), **more
    )
    return build_extension_config("r", "a.x", config, "1", secret)


def rewritten(modules: Modules, raw: bytes, delta: bool) -> bytes:
    return ExtensionStream(ExtensionRewriter(modules.files, modules.counts), delta).rewrite(raw)


@pytest.mark.parametrize("delta", [True, False])
@pytest.mark.parametrize("kind", ["HTTP", "NETWORK"])
def test_a_remote_module_becomes_a_file(modules: Modules, delta: bool, kind: str) -> None:
    modules.registry.replies["/x"] = Reply(BODY)
    found = given(rewritten(modules, response(wasm(modules, type=kind), delta), delta), delta)
    built = network_wasm_pb2.Wasm() if kind == "NETWORK" else http_wasm_pb2.Wasm()
    assert found.typed_config.Unpack(built)
    assert pathlib.Path(built.config.vm_config.code.local.filename).read_bytes() == BODY
    assert dict(built.config.vm_config.environment_variables.key_values) == {"A": "b"}
    assert found.name == "r"


@pytest.mark.parametrize(("strategy", "rules"), [("FAIL_OPEN", False), ("FAIL_CLOSE", True), ("FAIL_RELOAD", True)])
@pytest.mark.parametrize("kind", ["HTTP", "NETWORK"])
def test_a_filter_stands_in_for_a_module_that_cannot_be_had(
    modules: Modules, strategy: str, rules: bool, kind: str
) -> None:
    found = given(rewritten(modules, response(wasm(modules, type=kind, fail_strategy=strategy), True), True), True)
    built = network_rbac_pb2.RBAC() if kind == "NETWORK" else http_rbac_pb2.RBAC()
    assert found.typed_config.Unpack(built)
    assert built.HasField("rules") is rules
    statistics = built.stat_prefix if kind == "NETWORK" else built.rules_stat_prefix
    assert statistics == ("wasm-default-deny" if rules else "wasm-default-allow")


def test_a_module_whose_pull_secret_is_not_told_is_not_asked_for(modules: Modules) -> None:
    modules.registry.push("a", "1", archive(BODY))
    found = given(rewritten(modules, response(wasm(modules, "oci://HOST/a:1", secret=""), True), True), True)
    assert found.typed_config.Is(http_rbac_pb2.RBAC.DESCRIPTOR)
    assert not modules.registry.asked


def test_a_module_that_is_written_as_a_struct_becomes_a_file_too(modules: Modules) -> None:
    modules.registry.replies["/x"] = Reply(BODY)
    plain = wasm(modules)
    built = http_wasm_pb2.Wasm()
    assert plain.typed_config.Unpack(built)
    struct = typed_struct_pb2.TypedStruct(type_url=plain.typed_config.type_url)
    built.config.ClearField("configuration")
    struct.value.update(json_format.MessageToDict(built))
    plain.typed_config.Pack(struct)
    found = given(rewritten(modules, response(plain, True), True), True)
    assert found.typed_config.Unpack(built)
    assert built.config.vm_config.code.HasField("local")


@pytest.mark.parametrize("delta", [True, False])
def test_what_could_not_be_had_is_tried_again(modules: Modules, delta: bool) -> None:
    stream = ExtensionStream(ExtensionRewriter(modules.files, modules.counts), delta)
    assert given(stream.rewrite(response(wasm(modules), delta)), delta).typed_config.Is(http_rbac_pb2.RBAC.DESCRIPTOR)
    assert stream.has_pending
    assert stream.retry_pending() == b""
    modules.registry.replies["/x"] = Reply(BODY)
    assert given(stream.retry_pending(), delta).typed_config.Is(http_wasm_pb2.Wasm.DESCRIPTOR)
    assert not stream.has_pending


def test_what_another_response_takes_back_or_has_in_its_place_is_not_tried_again(modules: Modules) -> None:
    stream = ExtensionStream(ExtensionRewriter(modules.files, modules.counts), True)
    stream.rewrite(response(wasm(modules), True))
    stream.rewrite(
        discovery_pb2.DeltaDiscoveryResponse(type_url=EXTENSION, removed_resources=["r"]).SerializeToString()
    )
    assert not stream.has_pending
    stream.rewrite(response(wasm(modules), True))
    stream.rewrite(response(wasm(modules, "file:///x.wasm"), True))
    assert not stream.has_pending


def test_a_pull_secret_that_is_not_told_is_waited_for_and_nothing_tried_again(modules: Modules) -> None:
    stream = ExtensionStream(ExtensionRewriter(modules.files, modules.counts), True)
    stream.rewrite(response(wasm(modules, "oci://HOST/a:1", secret=""), True))
    assert not stream.has_pending


@pytest.mark.parametrize(
    ("content", "works"),
    [
        ('{"auths": {"HOST": {"auth": "bGFiOnNlY3JldA=="}}}', True),
        ('{"auths": {"other": {"auth": "bGFiOnNlY3JldA=="}}}', False),
        ("no JSON", False),
        (None, False),
    ],
)
def test_an_image_without_a_pull_secret_is_pulled_with_the_machines_login(
    tmp_path: pathlib.Path, content: str | None, works: bool
) -> None:
    registry = Registry("lab:secret")
    try:
        modules = Modules(tmp_path, registry)
        registry.push("a", "1", archive(BODY))
        if content is not None:
            (tmp_path / "config.json").write_text(content.replace("HOST", registry.host))
        if works:
            assert modules.get("oci://HOST/a:1") == BODY
        else:
            modules.fails("oci://HOST/a:1")
    finally:
        registry.stop()


def test_what_is_no_remote_module_stays_as_it_is(modules: Modules) -> None:
    other = extension_pb2.TypedExtensionConfig(name="r")
    other.typed_config.Pack(http_rbac_pb2.RBAC())
    for raw in (response(wasm(modules, "file:///x.wasm"), True), response(other, True), b"\xff\xff", b""):
        assert rewritten(modules, raw, True) == raw
