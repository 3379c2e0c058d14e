#!/usr/bin/env python3
"""Write tokens for the fleet of a benchmark: one for each Service in a configuration folder, for an account of the same
name.

    python bench/service_tokens.py CONFIG_DIR OUT

Writes OUT/keys.json for `pilot-discovery --tokenKeys`, and the tokens OUT/tokens/NAMESPACE/NAME, which are valid for a
week.
"""

from __future__ import annotations

import argparse
import base64
import json
import pathlib
import sys
import time

import yaml
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import padding, rsa


def base64url(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def sign(key: rsa.RSAPrivateKey, claims: object) -> str:
    text = ".".join(base64url(json.dumps(part).encode()) for part in ({"alg": "RS256", "kid": "bench"}, claims))
    return f"{text}.{base64url(key.sign(text.encode(), padding.PKCS1v15(), hashes.SHA256()))}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("config", type=pathlib.Path, help="configuration folder")
    parser.add_argument("out", type=pathlib.Path, help="output folder")
    options = parser.parse_args()
    config, out = options.config, options.out
    key, now = rsa.generate_private_key(65537, 2048), int(time.time())
    numbers = key.public_key().public_numbers()
    public = {
        "kty": "RSA",
        "kid": "bench",
        "alg": "RS256",
        "n": base64url(numbers.n.to_bytes(256, "big")),
        "e": base64url(numbers.e.to_bytes(3, "big")),
    }
    out.mkdir(parents=True, exist_ok=True)
    (out / "keys.json").write_text(json.dumps({"keys": [public]}))
    for path in sorted(config.rglob("*.yaml")):
        for plain in yaml.load_all(path.read_bytes(), getattr(yaml, "CSafeLoader", yaml.SafeLoader)):
            if plain and plain["kind"] == "Service":
                namespace, name = plain["metadata"]["namespace"], plain["metadata"]["name"]
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
