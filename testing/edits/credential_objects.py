"""Secrets, ConfigMaps, roots and who may read them, for random edits of a mesh."""

from __future__ import annotations

from pilot.mesh.tables.database import EVERY_ACCOUNT, AccountKey
from testing.edits.cluster_objects import WEST
from testing.edits.slot import Slot, one_of
from testing.security.credentials import Authority, config_map, data_secret, tls_secret

AUTHORITY, PARTNER = Authority(), Authority("partner")
SERVED, RENEWED = AUTHORITY.issue("x.example.com"), AUTHORITY.issue("x.example.com")


def secret(namespace: str) -> Slot:
    return one_of(
        tls_secret("c", SERVED, namespace),
        tls_secret("c", RENEWED, namespace, ca_crt=AUTHORITY.pem, ca_crl=AUTHORITY.crl()),
        data_secret("c", {"cert": SERVED.chain, "key": SERVED.private_key, "cacert": PARTNER.pem}, namespace),
        data_secret("c", {"cert": SERVED.chain, "key": RENEWED.private_key}, namespace),
    )


def access(*account: str) -> Slot:
    row = "SecretAccess", AccountKey(*account)
    return Slot(f"SecretAccess {'/'.join(account)}", "rows", ({row: True}, {row: False}), 0.4)


def roots(source: str, *authorities: Authority) -> Slot:
    """The roots of one source: one at a time, and all of them."""
    told = [tuple(one.pem.decode() for one in some) for some in (*((one,) for one in authorities), authorities)]
    return Slot(f"AuthorityRoots {source}", "rows", tuple({("AuthorityRoots", source): pems} for pems in told), 0.4)


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
