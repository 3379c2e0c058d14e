"""Faults of certificates and clocks."""

from __future__ import annotations

import base64
import datetime
import json
import pathlib
import shutil

from cryptography import x509

from ca.pem import certificate_pem, load_key
from ca.self_signed import sign_root
from ca.signer import Signer
from testing.security.certificates import intermediate, root, write_plugged_in
from tests.cluster.box.box import Box
from tests.cluster.box.cluster import Cluster
from tests.cluster.box.images import REPOSITORY
from tests.cluster.manifests import echo
from tests.cluster.mesh import SHOP, call, call_until
from tests.cluster.steps.installations import SYSTEM

CLOCK, PRELOADED = REPOSITORY / "tests/cluster/box/clock.c", REPOSITORY / "build/clock.so"
"""Shifts the clock of a process. Namespaces of Linux shift only monotonic clocks, and Envoy hangs with libfaketime."""
CALLS = 20


async def rotate_root(box: Box) -> str:
    """Let the lifetime of the self-signed root almost end, so that the control plane renews it."""
    (secret,) = await box.objects("secret", f"-n{SYSTEM}", "--field-selector=metadata.name=istio-ca-secret")
    key = load_key(base64.b64decode(secret["data"]["ca-key.pem"]), "ca-key.pem")
    old = x509.load_pem_x509_certificate(base64.b64decode(secret["data"]["ca-cert.pem"]))
    day, now = datetime.timedelta(days=1), datetime.datetime.now(datetime.UTC)
    ending = certificate_pem(sign_root(key, old.subject, 10 * day, now - 9 * day).certificate)
    patch = json.dumps({"data": {"ca-cert.pem": base64.b64encode(ending).decode()}})
    await box.kubectl("patch", "secret/istio-ca-secret", f"-n{SYSTEM}", "--patch", patch)
    interval = "CITADEL_SELF_SIGNED_ROOT_CERT_CHECK_INTERVAL=5s"
    await box.kubectl("set", "env", "deployment/istiod", f"-n{SYSTEM}", interval)
    await box.wait_available(SYSTEM, "istiod")

    async def is_renewed() -> bool:
        roots = await _trusted_roots(box)
        return all(root.not_valid_after_utc > now + 100 * day for root in roots) and old not in roots

    await box.until(is_renewed, 60, "the namespaces have the renewed root")
    await box.kubectl("rollout", "restart", "deployment/reviews", f"-n{SHOP}")
    await box.wait_available(SHOP, "reviews")
    await call(box, "front", "http://reviews/renewed")
    return "the self-signed root renewed, and pods started with it"


async def plug_in_authority(box: Box) -> str:
    """Replace the self-signed authority as documented, and then the intermediate certificate."""
    now, folder = datetime.datetime.now(datetime.UTC), box.folder / "cacerts"
    folder.mkdir()
    ours = root(7, now=now)
    (folder / "root-cert.pem").write_bytes(ours.roots_pem)
    await write_cacerts(box, folder)
    await box.kubectl("set", "env", "deployment/istiod", f"-n{SYSTEM}", "ISTIO_MULTIROOT_MESH=true")
    await box.wait_available(SYSTEM, "istiod")

    async def is_trusted() -> bool:
        return ours.certificate in await _trusted_roots(box)

    await box.until(is_trusted, 60, "the namespaces have the plugged-in root too")
    for name in ("books", "reviews"):  # proxies learn roots with their certificates
        await box.kubectl("rollout", "restart", f"deployment/{name}", f"-n{SHOP}")
        await box.wait_available(SHOP, name)
    signers = [intermediate(ours, number, now=now) for number in (1, 2)]
    for signer in signers:
        write_plugged_in(folder, signer._replace(roots=tuple(await _trusted_roots(box))))
        await write_cacerts(box, folder)
        if signer is signers[0]:  # another intermediate needs no restart
            await box.kubectl("rollout", "restart", "deployment/istiod", f"-n{SYSTEM}")
            await box.wait_available(SYSTEM, "istiod")
        await box.until(lambda signer=signer: _issues(box, signer), 90, "the authority issues certificates")
        await call_until(box, "books", "http://reviews/plugged-in")
    return "a plugged-in authority in place of the self-signed one, and its intermediate certificate replaced"


async def _issues(box: Box, signer: Signer) -> bool:
    """Return whether a restarted workload has a certificate of a signer."""
    await box.kubectl("rollout", "restart", "deployment/reviews", f"-n{SHOP}")
    await box.wait_available(SHOP, "reviews")
    url = "http://127.0.0.1:15000/config_dump?resource=dynamic_active_secrets"
    dump = json.loads(await box.run_in(SHOP, "reviews", "curl", "-sS", url, container="istio-proxy"))
    (chain,) = [
        base64.b64decode(active["secret"]["tls_certificate"]["certificate_chain"]["inline_bytes"])
        for active in dump["configs"]
        if active["name"] == "default"
    ]
    return certificate_pem(signer.certificate).strip() in chain


async def end_certificates(box: Box) -> str:
    """Give the callee certificates that end within a minute."""
    note = json.dumps({"proxyMetadata": {"SECRET_TTL": "40s"}})
    template = {"metadata": {"annotations": {"proxy.istio.io/config": note}}}
    await box.kubectl("patch", "deployment/books", f"-n{SHOP}", "--patch", json.dumps({"spec": {"template": template}}))
    await box.wait_available(SHOP, "books")
    serials, end = set[str](), box.age() + 90
    while box.age() < end:
        chains = json.loads(await _certificates(box, "books"))["certificates"]
        serials |= {chain["cert_chain"][0]["serial_number"] for chain in chains if chain["cert_chain"]}
        await call(box, "front", "http://books/renewed")
    assert len(serials) > 3, serials
    await box.kubectl("rollout", "undo", "deployment/books", f"-n{SHOP}")  # pods with slow clocks do not accept them
    await box.wait_available(SHOP, "books")
    return f"{len(serials)} certificates with a lifetime of 40 s one after the other"


async def shift_clock(box: Box) -> str:
    """Start pods whose clocks are ten minutes slow and fast, and call from and to them."""
    if not shutil.which("cc"):
        return "no C compiler is here, so no clock was shifted"
    PRELOADED.parent.mkdir(exist_ok=True)
    await box.command("cc", "-shared", "-fPIC", "-O1", "-o", str(PRELOADED), str(CLOCK))
    for name, offset in (("slow", "-600"), ("fast", "600")):
        variables = {"LD_PRELOAD": str(PRELOADED), "CLOCK_OFFSET": offset}
        note = {"proxy.istio.io/config": json.dumps({"proxyMetadata": variables})}
        await box.apply(echo(SHOP, name, annotations=note))
        await box.wait_available(SHOP, name)
        await call_until(box, "front", f"http://{name}/first")
        for _ in range(CALLS):
            await call(box, "front", f"http://{name}/to")
            await call(box, name, "http://books/from")
    return f"clocks of pods ten minutes slow and fast, and {2 * CALLS} calls from and to each"


async def _trusted_roots(box: Box) -> list[x509.Certificate]:
    (trusted,) = await box.objects("configmap", f"-n{SHOP}", "--field-selector=metadata.name=istio-ca-root-cert")
    return x509.load_pem_x509_certificates(trusted["data"]["root-cert.pem"].encode())


async def write_cacerts(cluster: Cluster, folder: pathlib.Path) -> None:
    """Write the Secret `cacerts` with the files of a folder."""
    create = ("create", "secret", "generic", "cacerts", f"-n{SYSTEM}", f"--from-file={folder}")
    await cluster.apply(await cluster.kubectl(*create, "--dry-run=client", "-ojson"))


async def _certificates(box: Box, name: str) -> str:
    """Return the certificates of the first proxy of a workload."""
    return await box.run_in(SHOP, name, "curl", "-sS", "http://127.0.0.1:15000/certs", container="istio-proxy")
