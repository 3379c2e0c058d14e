#!/usr/bin/env python3
"""Tokens for the fleet of a bench: one for each Service of a folder of configuration, of the service account of its name.

    python bench/service_tokens.py CONFIG_DIR OUT

Writes OUT/keys.json, which `pilot-discovery --tokenKeys` reads, and the tokens OUT/tokens/NAMESPACE/NAME, valid for a week.
"""

from __future__ import annotations

import base64
import json
import pathlib
import sys
import time

import yaml
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import padding, rsa


def encoded(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def sign(key: rsa.RSAPrivateKey, claims: object) -> str:
    text = ".".join(encoded(json.dumps(part).encode()) for part in ({"alg": "RS256", "kid": "bench"}, claims))
    return f"{text}.{encoded(key.sign(text.encode(), padding.PKCS1v15(), hashes.SHA256()))}"


def main() -> int:
    config, out = map(pathlib.Path, sys.argv[1:3])
    key, now = rsa.generate_private_key(65537, 2048), int(time.time())
    numbers = key.public_key().public_numbers()
    public = {
        "kty": "RSA",
        "kid": "bench",
        "alg": "RS256",
        "n": encoded(numbers.n.to_bytes(256, "big")),
        "e": encoded(numbers.e.to_bytes(3, "big")),
    }
    out.mkdir(parents=True, exist_ok=True)
    (out / "keys.json").write_text(json.dumps({"keys": [public]}))
    for path in sorted(config.rglob("*.yaml")):
        for found in yaml.load_all(path.read_bytes(), getattr(yaml, "CSafeLoader", yaml.SafeLoader)):
            if found and found["kind"] == "Service":
                namespace, name = found["metadata"]["namespace"], found["metadata"]["name"]
                subject = f"system:serviceaccount:{namespace}:{name}"
                folder = out / "tokens" / namespace
                folder.mkdir(parents=True, exist_ok=True)
                (folder / name).write_text(
                    sign(
                        key, {"iss": "bench", "aud": ["istio-ca"], "sub": subject, "nbf": now, "exp": now + 7 * 86_400}
                    )
                )
    return 0


if __name__ == "__main__":
    sys.exit(main())
