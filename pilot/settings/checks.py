"""Checks of the values of settings. A check raises ValueError, with the fix, if the value is invalid."""

from __future__ import annotations

import ipaddress
from collections.abc import Callable

from pilot.lib.suggestion import did_you_mean

Check = Callable[[str], None]
_ISSUERS = "istiod", "none", "custom"


def one_of(*values: str) -> Check:
    """Return a check that a value is one of `values`."""

    def check(text: str) -> None:
        if text not in values:
            raise ValueError(f"{text!r} is not one of {', '.join(values)}{did_you_mean(text, values)}")

    return check


def certificate_issuer(text: str) -> None:
    """Check that a text names an issuer of the secure port's certificate."""
    if text not in _ISSUERS and not text.startswith("k8s.io/"):
        values = f"{', '.join(_ISSUERS)} or k8s.io/SIGNER"
        raise ValueError(f"{text!r} is none of {values}{did_you_mean(text, _ISSUERS)}")


def url(text: str) -> None:
    """Check that a text is an HTTP URL."""
    if text and not text.startswith(("http://", "https://")):
        raise ValueError(f"{text!r} is not a URL; did you mean http://{text}?")


def prefix_of(version: int) -> Check:
    """Return a check that a value is a prefix with a length, and with addresses of an IP version to allocate."""
    example, longest = ("240.240.0.0/16", 32) if version == 4 else ("2001:2::/48", 128)

    def check(text: str) -> None:
        if "/" not in text:
            raise ValueError(f"{text!r} has no prefix length; append it, as in {example}")
        try:
            prefix = ipaddress.ip_network(text, strict=False)
        except ValueError:
            raise ValueError(f"{text!r} is not an address prefix; write one such as {example}") from None
        if prefix.version != version:
            raise ValueError(f"{text!r} is not an IPv{version} prefix; write one such as {example}")
        if prefix.prefixlen == longest:
            raise ValueError(f"{text!r} has no address to allocate; use a shorter prefix length, as in {example}")

    return check
