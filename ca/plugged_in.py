"""Plugged-in signing certificates, read from a folder in one of the two layouts that Istio supports.

https://istio.io/latest/docs/tasks/security/cert-management/plugin-ca-cert/
"""

from __future__ import annotations

import pathlib
from typing import NamedTuple

from ca.errors import KeyMaterialError
from ca.pem import load_bundle, load_key
from ca.signer import Signer
from ca.verify import check_signer

EXTRA_ROOTS = "root-cert.pem"
CRL = "ca-crl.pem"


class FileLayout(NamedTuple):
    """Names of the files in the folder. `chain` is "" if the certificate file also contains the intermediates."""

    certificate: str
    key: str
    roots: str
    chain: str = ""

    @property
    def files(self) -> tuple[str, ...]:
        """The required files."""
        return tuple(name for name in self if name)


TLS_LAYOUT = FileLayout("tls.crt", "tls.key", "ca.crt")
ISTIO_LAYOUT = FileLayout("ca-cert.pem", "ca-key.pem", "root-cert.pem", "cert-chain.pem")
LAYOUTS = (TLS_LAYOUT, ISTIO_LAYOUT)


class PluggedIn(NamedTuple):
    """The contents of a folder. `crl` is the certificate revocation list in PEM, or b"" if there is none."""

    signer: Signer
    crl: bytes = b""


def read_plugged_in(folder: str) -> PluggedIn | None:
    """Return the signer in a folder, or None if the folder contains no signing certificate.

    A folder with only root-cert.pem provides extra roots for a self-signed signer. Raise KeyMaterialError if files are
    missing, are invalid, or do not match each other.
    """
    top = pathlib.Path(folder)
    for layout in LAYOUTS:
        present = [name for name in layout.files if (top / name).is_file()]
        if len(present) == len(layout.files):
            return PluggedIn(
                _read(top, layout), _read_file(top / CRL) if layout is ISTIO_LAYOUT and (top / CRL).is_file() else b""
            )
        if present and present != [EXTRA_ROOTS]:
            missing = ", ".join(name for name in layout.files if name not in present)
            raise KeyMaterialError(f"{folder}: missing {missing} (found {', '.join(present)})")
    return None


def read_extra_roots(folder: str) -> bytes:
    """Return the extra roots, in PEM, that a folder provides for a self-signed signer, or b"" if it has none."""
    path = pathlib.Path(folder) / EXTRA_ROOTS
    return _read_file(path) if path.is_file() else b""


def _read(top: pathlib.Path, layout: FileLayout) -> Signer:
    certificates = load_bundle(_read_file(top / layout.certificate), str(top / layout.certificate))
    chain = certificates[1:]
    if layout.chain:
        chain = load_bundle(_read_file(top / layout.chain), str(top / layout.chain))
    roots = load_bundle(_read_file(top / layout.roots), str(top / layout.roots))
    key = load_key(_read_file(top / layout.key), str(top / layout.key))
    certificate = certificates[0]
    above = (certificate, *(c for c in chain if c != certificate))
    signer = Signer(certificate, key, tuple(c for c in above if c not in roots), roots)
    check_signer(signer, str(top))
    return signer


def _read_file(path: pathlib.Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise KeyMaterialError(f"{path}: {error.strerror or error}") from error
