"""Secrets, ConfigMaps, root certificates and access to them, for random edits of a mesh."""

from __future__ import annotations

from pilot.mesh.tables.database import EVERY_ACCOUNT, AccountKey
from testing.edits.cluster_objects import WEST
from testing.edits.slot import Slot, one_of
from testing.security.credentials import Authority, config_map, data_secret, tls_secret

AUTHORITY, PARTNER = Authority(), Authority("partner")
SERVED, RENEWED = AUTHORITY.issue("x.example.com"), AUTHORITY.issue("x.example.com")


def secret(namespace: str) -> Slot:
    """Return a slot of a Secret with variants of a certificate."""
    return one_of(
        tls_secret("c", SERVED, namespace),
        tls_secret("c", RENEWED, namespace, ca_crt=AUTHORITY.pem, ca_crl=AUTHORITY.crl()),
        data_secret("c", {"cert": SERVED.chain, "key": SERVED.private_key, "cacert": PARTNER.pem}, namespace),
        data_secret("c", {"cert": SERVED.chain, "key": RENEWED.private_key}, namespace),
    )


def access(*account: str) -> Slot:
    """Return a slot of an account's permission to read Secrets."""
    row = "SecretAccess", AccountKey(*account)
    return Slot(f"SecretAccess {'/'.join(account)}", "rows", ({row: True}, {row: False}), 0.4)


def roots(source: str, *authorities: Authority) -> Slot:
    """Return a slot of the roots of one source: each one, and all of them."""
    subsets = (*((authority,) for authority in authorities), authorities)
    bundles = [tuple(authority.pem.decode() for authority in subset) for subset in subsets]
    return Slot(f"AuthorityRoots {source}", "rows", tuple({("AuthorityRoots", source): pems} for pems in bundles), 0.4)


CREDENTIALS: list[Slot] = [
    secret("edge"),
    secret("a"),
    secret("edge")._replace(cluster=WEST, name="Secret edge/c west"),
    one_of(*(data_secret("c-cacert", {"ca.crt": pem}) for pem in (AUTHORITY.pem, b"none"))),
    *(
        one_of(
            *(
                config_map("c", {key: root.pem.decode()}, namespace)
                for key, root in (("cacert", AUTHORITY), ("ca.crt", PARTNER))
            )
        )
        for namespace in ("edge", "istio-system")
    ),
    access(*EVERY_ACCOUNT),
    access("Kubernetes", "edge", "default"),
    access("Kubernetes", "a", "default"),
    access(WEST, "edge", "default"),
    *(
        one_of(
            *(
                data_secret("pull", {".dockerconfigjson": text}, namespace, "kubernetes.io/dockerconfigjson")
                for text in (b"{}", b'{"auths": {}}')
            )
        )
        for namespace in ("a", "istio-system")
    ),
    roots("own", AUTHORITY, PARTNER),
    roots("external", PARTNER, Authority("external")),
]
