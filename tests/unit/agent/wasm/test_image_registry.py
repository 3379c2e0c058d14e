"""Image references, and requests to registries, recorded by an HTTP client stub."""

from __future__ import annotations

import hashlib
import json
import ssl
from collections.abc import Mapping
from typing import Any

import pytest

from pilot.agent.wasm.docker_credentials import Login
from pilot.agent.wasm.http_fetcher import FetchedResponse, FetchError
from pilot.agent.wasm.image_registry import Descriptor, ImageReference, RegistryClient, parse_image

MANIFEST = json.dumps({"layers": [{"digest": "sha256:a", "mediaType": "application/wasm"}]}).encode()
IMAGE = ImageReference("r.example.com", "lab/x", "1")
LOGIN = Login("lab", "secret")
PAGE = "https://r.example.com/v2/lab/x/manifests/1"
ACCEPTED = (
    "application/vnd.oci.image.manifest.v1+json, application/vnd.docker.distribution.manifest.v2+json, "
    "application/vnd.oci.image.index.v1+json, application/vnd.docker.distribution.manifest.list.v2+json"
)


class Fetcher:
    """Serves responses by URL, repeating the last one. Errors are raised."""

    largest = 1000

    def __init__(self) -> None:
        self.responses: dict[str, list[Any]] = {}
        self.requests: list[tuple[str, str, bool]] = []

    def get(
        self, url: str, deadline: float, headers: Mapping[str, str] | None = None, insecure: bool = False
    ) -> FetchedResponse:
        request_headers = dict(headers or {})
        assert deadline == 7.0
        assert ("manifests" not in url) or request_headers["Accept"] == ACCEPTED
        self.requests.append((url, request_headers.get("Authorization", ""), insecure))
        responses = self.responses.get(url, [FetchedResponse(404, {}, b"")])
        response = responses.pop(0) if len(responses) > 1 else responses[0]
        if isinstance(response, Exception):
            raise response
        result: FetchedResponse = response
        return result


def challenge(text: str) -> FetchedResponse:
    return FetchedResponse(401, {"www-authenticate": text}, b"")


def registry(
    responses: dict[str, list[Any]], login: Login | None = None, insecure: bool = False, image: ImageReference = IMAGE
) -> tuple[RegistryClient, Fetcher]:
    fetcher: Any = Fetcher()
    fetcher.responses = responses
    return RegistryClient(fetcher, image, login, 7.0, insecure), fetcher


def manifest_error(client: RegistryClient) -> tuple[str, str, bool]:
    with pytest.raises(FetchError) as error:
        client.manifest()
    return str(error.value), error.value.result, error.value.is_retryable


MANIFEST_RESPONSE = FetchedResponse(200, {}, MANIFEST)


@pytest.mark.parametrize(
    ("challenge_header", "token_url"),
    [
        (
            'Bearer realm="https://auth.example/t",service="r",scope="s:a b"',
            "https://auth.example/t?service=r&scope=s%3Aa+b",
        ),
        ('bearer realm="https://auth.example/t"', "https://auth.example/t?scope=repository%3Alab%2Fx%3Apull"),
        (
            'Bearer realm="https://auth.example/t?a=b",service="r"',
            "https://auth.example/t?a=b&service=r&scope=repository%3Alab%2Fx%3Apull",
        ),
    ],
)
@pytest.mark.parametrize("login", [None, LOGIN])
@pytest.mark.parametrize("field", ["token", "access_token"])
def test_token_is_requested_from_the_challenge(
    challenge_header: str, token_url: str, login: Login | None, field: str
) -> None:
    client, fetcher = registry(
        {
            PAGE: [challenge(challenge_header), MANIFEST_RESPONSE],
            token_url: [FetchedResponse(200, {}, json.dumps({field: "tok"}).encode())],
        },
        login,
    )
    digest = f"sha256:{hashlib.sha256(MANIFEST).hexdigest()}"
    manifest, digests = client.manifest()
    assert (manifest.digest, digests, [layer.digest for layer in manifest.layers]) == (
        digest,
        frozenset((digest,)),
        ["sha256:a"],
    )
    assert fetcher.requests == [
        (PAGE, "", False),
        (token_url, login.basic_authorization if login else "", False),
        (PAGE, "Bearer tok", False),
    ]


def test_basic_login_is_sent_on_challenge_and_reused_for_layers() -> None:
    layer = f"sha256:{hashlib.sha256(b'layer').hexdigest()}"
    blob = f"https://r.example.com/v2/lab/x/blobs/{layer}"
    client, fetcher = registry(
        {PAGE: [challenge("Basic realm=x"), MANIFEST_RESPONSE], blob: [FetchedResponse(200, {}, b"layer")]}, LOGIN
    )
    client.manifest()
    assert client.blob(Descriptor(layer)) == b"layer"
    assert fetcher.requests == [
        (PAGE, "", False),
        (PAGE, LOGIN.basic_authorization, False),
        (blob, LOGIN.basic_authorization, False),
    ]
    assert LOGIN.basic_authorization == "Basic bGFiOnNlY3JldA=="


@pytest.mark.parametrize(
    ("responses", "text", "result", "is_retryable"),
    [
        (
            [challenge("Basic realm=x")],
            "the registry of NAME requires a login, but none is configured",
            "manifest_failure",
            False,
        ),
        (
            [challenge('Bearer realm="http://auth.example/t"')],
            "the registry of NAME requires an unsupported authentication scheme",
            "manifest_failure",
            False,
        ),
        (
            [challenge('Digest realm="https://auth.example/t"')],
            "the registry of NAME requires an unsupported authentication scheme",
            "manifest_failure",
            False,
        ),
        (
            [challenge('Bearer realm="https://auth.example/t"')],
            "cannot obtain a token for the registry of NAME: status 404",
            "manifest_failure",
            False,
        ),
        ([FetchedResponse(404, {}, b"")], "the registry of NAME returned status 404", "manifest_failure", False),
        ([FetchedResponse(500, {}, b"")], "the registry of NAME returned status 500", "manifest_failure", True),
        ([FetchedResponse(200, {}, b"no JSON")], "the manifest of NAME is invalid", "manifest_failure", False),
        (
            [FetchedResponse(200, {}, b" " * (4 * 1024 * 1024 + 1))],
            "the manifest of NAME is larger than 4194304 bytes",
            "manifest_failure",
            False,
        ),
    ],
)
def test_registry_errors_are_reported(responses: list[Any], text: str, result: str, is_retryable: bool) -> None:
    client, _ = registry({PAGE: responses})
    assert manifest_error(client) == (text.replace("NAME", IMAGE.name), result, is_retryable)


@pytest.mark.parametrize("token", ["", "a\nb", "é"])
def test_invalid_token_is_not_sent(token: str) -> None:
    token_url = "https://auth.example/t?scope=repository%3Alab%2Fx%3Apull"
    client, fetcher = registry(
        {
            PAGE: [challenge('Bearer realm="https://auth.example/t"')],
            token_url: [FetchedResponse(200, {}, json.dumps({"token": token}).encode())],
        }
    )
    assert manifest_error(client)[0] == f"cannot obtain a token for the registry of {IMAGE.name}: status 200"
    assert len(fetcher.requests) == 2


@pytest.mark.parametrize(
    ("insecure", "cause", "falls_back"),
    [(True, ssl.SSLError(), True), (False, ssl.SSLError(), False), (True, OSError(), False)],
)
def test_plain_http_fallback_for_insecure_registries(insecure: bool, cause: OSError, falls_back: bool) -> None:
    error = FetchError("no TLS")
    error.__cause__ = cause
    plain_url = PAGE.replace("https:", "http:")
    client, fetcher = registry({PAGE: [error], plain_url: [MANIFEST_RESPONSE]}, insecure=insecure)
    if falls_back:
        client.manifest()
        client.manifest()
        assert fetcher.requests == [(PAGE, "", True), (plain_url, "", True), (plain_url, "", True)]
    else:
        assert manifest_error(client)[0] == "no TLS"
        assert fetcher.requests == [(PAGE, "", insecure)]


@pytest.mark.parametrize(
    ("platforms", "expected"),
    [
        ([("linux", "arm64"), ("linux", "amd64")], 1),
        ([("linux", "amd64"), ("wasi", "wasm")], 1),
        ([("wasi", "wasm"), ("wasip1", "wasm")], 1),
        ([("linux", "arm64"), ("windows", "amd64")], 0),
        ([None, ("linux", "amd64")], 1),
        ([None, ("wasm", "wasi")], 0),
    ],
)
def test_index_prefers_wasm_then_linux_then_the_first_image(platforms: list[Any], expected: int) -> None:
    images = [json.dumps({"layers": [{"digest": f"sha256:{number}"}]}).encode() for number in range(len(platforms))]
    digests = [f"sha256:{hashlib.sha256(image).hexdigest()}" for image in images]
    entries = [
        {
            "digest": digest,
            **({"platform": dict(zip(("os", "architecture"), platform, strict=True))} if platform else {}),
        }
        for digest, platform in zip(digests, platforms, strict=True)
    ]
    index = json.dumps({"manifests": entries}).encode()
    pages = {
        PAGE.replace("/1", f"/{digest}"): [FetchedResponse(200, {}, image)]
        for digest, image in zip(digests, images, strict=True)
    }
    client, _ = registry({PAGE: [FetchedResponse(200, {}, index)], **pages})
    manifest, names = client.manifest()
    assert [layer.digest for layer in manifest.layers] == [f"sha256:{expected}"]
    assert names == {f"sha256:{hashlib.sha256(index).hexdigest()}", digests[expected]}


def test_docker_hub_images_use_its_registry_host() -> None:
    page = "https://registry-1.docker.io/v2/library/x/manifests/1"
    client, fetcher = registry({page: [MANIFEST_RESPONSE]}, image=ImageReference("index.docker.io", "library/x", "1"))
    client.manifest()
    assert fetcher.requests == [(page, "", False)]


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
