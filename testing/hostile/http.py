"""Families of hostile HTTP requests: encoded bodies of reviews, and queries of the pages."""

from __future__ import annotations

import gzip
import json
import zlib

from testing.hostile.callers import Requests
from testing.hostile.search import LARGEST_INPUT, Choices
from testing.kube.webhooks import pod, review

_REVIEW = review(pod())
POSTED = ("/inject", "/validate", "/inject/net/n1/cluster/c1", "/debug/authz", "/metrics", "/version", "/ready", "/")
ENCODINGS = ("", "", "gzip", "deflate", "br", "zstd", "gzip, gzip", "identity", "GZIP", "x")
"""Content encodings. An encoding of "" is omitted."""


def _repeat(data: bytes, count: int) -> bytes:
    """Return data once, or several times if this is at most twice the largest input."""
    return data * max(1, min(count, 2 * LARGEST_INPUT // len(data)))


def _review_text(c: Choices) -> str:
    """Return an admission review that is incomplete, ambiguous or in a strange form."""
    padding = c.text("padding", ("a", "\\u00e9", "é", "\\ud800", " ", "[", '{"a":', "1", "[],", "\\", "\n"), 900_000)
    members = "".join(
        f'"{c.pick("member", ("uid", "a", "kind", "object"))}":{n},' for n in range(c.count("members", 50_000))
    )
    form = c.pick("form", ("valid", "member", "text", "cut", "repeated", "annotation", "uid", "response", "list"))
    text = json.dumps(_REVIEW)
    match form:
        case "member":
            return f'{{{members}"request":{{{members}"uid":"a"}}}}'
        case "text":
            return padding
        case "cut":
            return text[: c.count("kept", 5000)] + padding
        case "repeated":
            return f'{{"kind":"AdmissionReview",{members}' + text[1:]
        case "annotation":
            return text.replace('"name":', f'"annotations":{{"a":"{padding}"}},"name":', 1)
        case "uid":
            return text.replace('"uid":', f'"uid":"{padding}","x":', 1)
        case "response":
            return '{"response":' + padding + "}"
        case "list":
            return "[" + ",".join([text] * c.count("reviews", 500)) + "]"
    return text + padding


def encoded_bodies(c: Choices) -> Requests:
    """Return reviews in any encoding, also in chunks."""
    text = _review_text(c)
    body = text.encode(c.pick("charset", ("utf-8", "utf-8", "utf-16", "utf-32", "latin-1")), "replace")
    encoding = c.pick("encoding", ENCODINGS)
    body += c.pick("filler", (b" ", b"\0", b"a")) * c.count("expanded", 30_000_000 if encoding else 100_000)
    if encoding.lower().startswith("gzip"):
        body = _repeat(gzip.compress(body, 6, mtime=0), c.count("members of the file", 500))
    elif encoding == "deflate":
        body = zlib.compress(body) if c.pick("zlib", (True, False)) else zlib.compress(body, wbits=-15)
    if cut := c.pick("cut off", (0, 0, 5)):
        body = body[:-cut]
    kinds = (
        "application/json",
        "application/json; charset=utf-7",
        "application/json;" + " a=b;" * 500,
        "é",
        "a/" * 500,
    )
    path, kind = c.pick("page", POSTED), c.pick("content type", kinds)
    head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: {kind}\r\n"
    if encoding:
        head += f"Content-Encoding: {encoding}\r\n"
    if c.pick("chunked", (False, False, True)):
        width = max(1, c.count("chunk", 100_000))
        size = f"{min(width, len(body)):x}".rjust(c.pick("digits", (1, 15, 2000)), "0")
        extension = c.pick("extension", ("", ";a=b", ";" + "a" * 4000)).encode()
        chunks = [body[start : start + width] for start in range(0, len(body), width)][:20_000]
        data = b"".join(
            (size if len(chunk) == width else f"{len(chunk):x}").encode() + extension + b"\r\n" + chunk + b"\r\n"
            for chunk in chunks
        )
        trailers = c.pick("trailer", ("", "a: b\r\n", "é", "a" * 8000 + ": b\r\n")) * max(1, c.count("trailers", 200))
        whole = head.encode() + b"Transfer-Encoding: chunked\r\n\r\n" + data + b"0\r\n" + trailers.encode() + b"\r\n"
    else:
        whole = f"{head}Content-Length: {len(body) + c.pick('missing', (0, 0, 1))}\r\n\r\n".encode() + body
    return Requests(_repeat(whole, c.count("requests", 500)), max(1, c.count("connections", 300)))


DASHBOARD = "/debug/dashboard/"
QUERIES: dict[str, tuple[str, ...]] = {
    "/debug/syncz": ("namespace", "proxyID", "pretty"),
    "/debug/adsz": ("push", "proxyID"),
    "/debug/config_dump": ("proxyID", "types", "include_eds", "pretty"),
    "/debug/describe": ("proxyID", "namespace", "port"),
    "/debug/authz": ("proxyID", "request"),
    "/debug/explain": ("proxyID", "resource", "type"),
    "/debug/rollout": ("kind", "namespace", "name", "generation", "proxy", "fingerprint", "uid"),
    "/debug/statusz": ("namespace", "kind", "name"),
    "/debug/problemz": ("namespace", "proxies"),
    "/debug/configz": ("pretty",),
    "/debug/cachez": ("sizes", "clear"),
    "/debug/pprof/goroutine": ("debug",),
    "/debug/force_disconnect": ("proxyID",),
    f"{DASHBOARD}search": ("text",),
    f"{DASHBOARD}nearest": ("address",),
    f"{DASHBOARD}service": ("host", "namespace"),
    f"{DASHBOARD}accounts": ("host", "namespace"),
    f"{DASHBOARD}object": ("group", "kind", "namespace", "name"),
    f"{DASHBOARD}proxies": ("namespace", "state", "text"),
    f"{DASHBOARD}proxy": ("id",),
    f"{DASHBOARD}resources": ("id", "type", "text"),
    f"{DASHBOARD}resource": ("id", "type", "name"),
    f"{DASHBOARD}mesh": ("namespace",),
    f"{DASHBOARD}traffic": ("namespace",),
    "/metrics": ("a",),
}
"""The parameters of pages by path."""
ACCEPTED = ("", "gzip", "gzip;q=0", "text/html", "application/openmetrics-text;version=1.0.0", "é", "*/*;q=")


def queries(c: Choices) -> Requests:
    """Return requests of pages with their own parameters."""
    path = c.pick("page", tuple(QUERIES))
    values = (
        "a",
        "%0A",
        "1.1.1.1%0A",
        "%7B",
        "%5B",
        "%22a%22:",
        ".",
        "/",
        "%00",
        "%C3%A9",
        "%FF",
        "9",
        "1e9",
        "*",
        "+",
        "{}",
        "-",
        "~",
        "|",
    )
    parameters = []
    for name in QUERIES[path]:
        form = c.pick(f"{name} form", ("absent", "text", "text", "known"))
        if form == "text":
            parameters.append(f"{name}={c.text(name, values, 60_000)}")
        elif form == "known":
            values_of_pages = (
                "VirtualService",
                "gateway",
                "80",
                "cds",
                "web.hostile",
                "sidecar~10.0.0.1~a.b~c",
                "true",
                "istio-system",
            )
            parameters.append(f"{name}={c.pick(f'{name} value', values_of_pages)}")
    # Choices without effect are not made: inputs that differ only in them would be different shapes.
    if others := c.count("others", 20_000):
        parameters += [f"{c.pick('other', ('a', 'proxyID', 'pretty', ''))}=b"] * others
    headers = ""
    if lines := c.count("headers", 500):
        name = c.pick(
            "header",
            ("Accept", "Accept-Encoding", "Cookie", "Origin", "Sec-Fetch-Site", "Authorization", "X-Forwarded-For"),
        )
        line = f"{name}: {c.pick('accepted', ACCEPTED)}{c.text('line', ('a', ',', ';', '=', ' ', '%', 'é'), 8000)}\r\n"
        headers = line * lines
    host = c.pick("host", ("localhost", "localhost:8080", "[::1]", "evil.example"))
    method = c.pick("method", ("GET", "HEAD", "POST"))
    text = f"{method} {path}{'?' if parameters else ''}{'&'.join(parameters)} HTTP/1.1\r\nHost: {host}\r\n{headers}\r\n"
    return Requests(_repeat(text.encode(), c.count("requests", 500)), max(1, c.count("connections", 300)))
