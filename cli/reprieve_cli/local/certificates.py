"""A certificate authority for one run: made in the run directory, deleted with it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import trustme

from reprieve_cli.local.world.settings import Tls

if TYPE_CHECKING:
    from pathlib import Path


def make(directory: Path) -> Tls:
    """Make an authority and a certificate for this machine's loopback names."""
    directory.mkdir(parents=True, exist_ok=True)
    authority = trustme.CA()
    certificate = authority.issue_cert("localhost", "127.0.0.1")
    tls = Tls(
        authority=str(directory / "authority.pem"),
        certificate=str(directory / "certificate.pem"),
        key=str(directory / "key.pem"),
    )
    authority.cert_pem.write_to_path(tls.authority)
    for blob in certificate.cert_chain_pems:
        blob.write_to_path(tls.certificate, append=True)
    certificate.private_key_pem.write_to_path(tls.key)
    return tls
