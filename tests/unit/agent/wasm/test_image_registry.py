"""What registries of images are asked, by what they ask for in turn. A client of HTTP stands in, and keeps every request."""

from __future__ import annotations

import hashlib
import json
import ssl
from collections.abc import Mapping
from typing import Any

import pytest

from pilot.agent.wasm.docker_credentials import Login, find_login
from pilot.agent.wasm.http_fetcher import FetchedResponse, FetchError
from pilot.agent.wasm.image_registry import Descriptor, ImageReference, RegistryClient

MANIFEST = json.dumps({"layers": [{"digest": "sha256:a", "mediaType": "application/wasm"}]}).encode()
IMAGE = ImageReference("r.example.com", "lab/x", "1")
LOGIN = Login("lab", "secret")
PAGE = "https://r.example.com/v2/lab/x/manifests/1"
ACCEPTED = (
    "application/vnd.oci.image.manifest.v1+json, application/vnd.docker.distribution.manifest.v2+json, "
    "application/vnd.oci.image.index.v1+json, application/vnd.docker.distribution.manifest.list.v2+json"
)


class Fetcher:
    """Answers by URL, the last answer again and again; an error is raised."""

    largest = 1000

    def __init__(self) -> None:
        self.answers: dict[str, list[Any]] = {}
        self.asked: list[tuple[str, str, bool]] = []

    def get(
        self, url: str, deadline: float, headers: Mapping[str, str] | None = None, insecure: bool = False
    ) -> FetchedResponse:
        said = dict(headers or {})
        assert deadline == 7.0
        assert ("manifests" not in url) or said["Accept"] == ACCEPTED
        self.asked.append((url, said.get("Authorization", ""), insecure))
        answers = self.answers.get(url, [FetchedResponse(404, {}, b"")])
        answer = answers.pop(0) if len(answers) > 1 else answers[0]
        if isinstance(answer, Exception):
            raise answer
        found: FetchedResponse = answer
        return found


def challenge(text: str) -> FetchedResponse:
    return FetchedResponse(401, {"www-authenticate": text}, b"")


def registry(
    answers: dict[str, list[Any]], login: Login | None = None, insecure: bool = False, image: ImageReference = IMAGE
) -> tuple[RegistryClient, Fetcher]:
    fetcher: Any = Fetcher()
    fetcher.answers = answers
    return RegistryClient(fetcher, image, login, 7.0, insecure), fetcher


def fails(made: RegistryClient) -> tuple[str, str, bool]:
    with pytest.raises(FetchError) as error:
        made.manifest()
    return str(error.value), error.value.result, error.value.is_retryable


FINE = FetchedResponse(200, {}, MANIFEST)


@pytest.mark.parametrize(
    ("said", "asked"),
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
def test_a_token_is_asked_for_where_the_registry_says(said: str, asked: str, login: Login | None, field: str) -> None:
    made, fetcher = registry(
        {PAGE: [challenge(said), FINE], asked: [FetchedResponse(200, {}, json.dumps({field: "tok"}).encode())]}, login
    )
    digest = f"sha256:{hashlib.sha256(MANIFEST).hexdigest()}"
    manifest, digests = made.manifest()
    assert (manifest.digest, digests, [layer.digest for layer in manifest.layers]) == (
        digest,
        frozenset((digest,)),
        ["sha256:a"],
    )
    assert fetcher.asked == [
        (PAGE, "", False),
        (asked, login.basic_authorization if login else "", False),
        (PAGE, "Bearer tok", False),
    ]


def test_a_login_is_sent_to_a_registry_that_asks_for_it_and_kept_for_the_layers() -> None:
    layer = f"sha256:{hashlib.sha256(b'layer').hexdigest()}"
    blob = f"https://r.example.com/v2/lab/x/blobs/{layer}"
    made, fetcher = registry(
        {PAGE: [challenge("Basic realm=x"), FINE], blob: [FetchedResponse(200, {}, b"layer")]}, LOGIN
    )
    made.manifest()
    assert made.blob(Descriptor(layer)) == b"layer"
    assert fetcher.asked == [
        (PAGE, "", False),
        (PAGE, LOGIN.basic_authorization, False),
        (blob, LOGIN.basic_authorization, False),
    ]
    assert LOGIN.basic_authorization == "Basic bGFiOnNlY3JldA=="


@pytest.mark.parametrize(
    ("answers", "text", "result", "passing"),
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
def test_what_a_registry_does_not_give_is_said(answers: list[Any], text: str, result: str, passing: bool) -> None:
    made, _ = registry({PAGE: answers})
    assert fails(made) == (text.replace("NAME", IMAGE.name), result, passing)


@pytest.mark.parametrize("token", ["", "a\nb", "é"])
def test_a_token_that_is_none_is_not_sent(token: str) -> None:
    asked = "https://auth.example/t?scope=repository%3Alab%2Fx%3Apull"
    made, fetcher = registry(
        {
            PAGE: [challenge('Bearer realm="https://auth.example/t"')],
            asked: [FetchedResponse(200, {}, json.dumps({"token": token}).encode())],
        }
    )
    assert fails(made)[0] == f"cannot obtain a token for the registry of {IMAGE.name}: status 200"
    assert len(fetcher.asked) == 2


@pytest.mark.parametrize(
    ("insecure", "cause", "falls_back"),
    [(True, ssl.SSLError(), True), (False, ssl.SSLError(), False), (True, OSError(), False)],
)
def test_plain_http_is_spoken_where_that_is_allowed_and_there_is_no_tls(
    insecure: bool, cause: OSError, falls_back: bool
) -> None:
    error = FetchError("no TLS")
    error.__cause__ = cause
    plain = PAGE.replace("https:", "http:")
    made, fetcher = registry({PAGE: [error], plain: [FINE]}, insecure=insecure)
    if falls_back:
        made.manifest()
        made.manifest()
        assert fetcher.asked == [(PAGE, "", True), (plain, "", True), (plain, "", True)]
    else:
        assert fails(made)[0] == "no TLS"
        assert fetcher.asked == [(PAGE, "", insecure)]


@pytest.mark.parametrize(
    ("platforms", "chosen"),
    [
        ([("linux", "arm64"), ("linux", "amd64")], 1),
        ([("linux", "amd64"), ("wasi", "wasm")], 1),
        ([("wasi", "wasm"), ("wasip1", "wasm")], 1),
        ([("linux", "arm64"), ("windows", "amd64")], 0),
        ([None, ("linux", "amd64")], 1),
        ([None, ("wasm", "wasi")], 0),
    ],
)
def test_of_a_list_the_image_for_wasm_is_taken_then_that_of_linux_then_the_first(
    platforms: list[Any], chosen: int
) -> None:
    images = [json.dumps({"layers": [{"digest": f"sha256:{number}"}]}).encode() for number in range(len(platforms))]
    digests = [f"sha256:{hashlib.sha256(image).hexdigest()}" for image in images]
    listed = [
        {
            "digest": digest,
            **({"platform": dict(zip(("os", "architecture"), platform, strict=True))} if platform else {}),
        }
        for digest, platform in zip(digests, platforms, strict=True)
    ]
    top = json.dumps({"manifests": listed}).encode()
    pages = {
        PAGE.replace("/1", f"/{digest}"): [FetchedResponse(200, {}, image)]
        for digest, image in zip(digests, images, strict=True)
    }
    made, _ = registry({PAGE: [FetchedResponse(200, {}, top)], **pages})
    manifest, names = made.manifest()
    assert [layer.digest for layer in manifest.layers] == [f"sha256:{chosen}"]
    assert names == {f"sha256:{hashlib.sha256(top).hexdigest()}", digests[chosen]}


def test_images_of_docker_are_at_its_own_host() -> None:
    page = "https://registry-1.docker.io/v2/library/x/manifests/1"
    made, fetcher = registry({page: [FINE]}, image=ImageReference("index.docker.io", "library/x", "1"))
    made.manifest()
    assert fetcher.asked == [(page, "", False)]


@pytest.mark.parametrize(
    ("entry", "host", "login"),
    [
        ({"auth": "bGFiOnNlY3JldA=="}, "r.example.com", LOGIN),
        ({"auth": "bGFiOnNlY3JldA=="}, "https://r.example.com/v1/", LOGIN),
        ({"auth": "bGFiOnNlY3JldAAA"}, "r.example.com", LOGIN),  # padded by zero bytes, as some programs write it
        ({"username": "lab", "password": "secret"}, "r.example.com", LOGIN),
        ({"username": "x", "auth": "bGFiOnNlY3JldA=="}, "r.example.com", LOGIN),
        ({"auth": "bGFi"}, "r.example.com", None),
        ({"password": "secret"}, "r.example.com", None),
        ({"auth": "bGFiOnNlY3JldA=="}, "r.example.com:443", None),
        ({"auth": "bGFiOnNlY3JldA=="}, "docker.io", None),
    ],
)
def test_a_login_is_found_by_the_registry_s_host(entry: dict[str, str], host: str, login: Login | None) -> None:
    assert find_login(json.dumps({"auths": {"other": {"auth": "YTpi"}, host: entry}}), "r.example.com") == login


@pytest.mark.parametrize("host", ["https://index.docker.io/v1/", "docker.io", "registry-1.docker.io"])
def test_docker_s_registry_has_three_names(host: str) -> None:
    assert find_login(json.dumps({"auths": {host: {"auth": "bGFiOnNlY3JldA=="}}}), "index.docker.io") == LOGIN


@pytest.mark.parametrize(
    ("secret", "text"),
    [("x", "not a Docker configuration"), ('{"auths": {"r": {"auth": "?"}}}', "not valid base64 text")],
)
def test_a_pull_secret_that_cannot_be_read_is_said(secret: str, text: str) -> None:
    with pytest.raises(ValueError, match=text):
        find_login(secret, "r")
