"""Certificates of one deployment: an authority that lives as long as the run, and what it signs.

Nobody else's certificates count: whoever has an invitation has one of this authority, and both
sides of every connection show theirs (TLS 1.3). Private keys are in memory and in the invitations,
which only their owner can read.
"""

import datetime
import os
import ssl
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

from desim.errors import InputError

COORDINATOR = "coordinator.desim"  # the name in its certificate
HOLD = 3600.0  # s that certificates hold; a day before counts, too: clocks of hosts differ
NEEDED = "needs the package cryptography: pip install 'desim[deploy]'"


class Identity(NamedTuple):
    """PEM texts: of the authority, of one's own certificate, and of its private key."""

    authority: str
    certificate: str
    key: str


class Authority:
    """Signs certificates of one deployment; its own key never leaves the process.

    until: when all of them end, `seconds` s from now, as time that knows its zone.
    """

    def __init__(self, seconds: float = HOLD) -> None:
        try:
            from cryptography.hazmat.primitives.asymmetric import ec
        except ImportError:
            raise InputError(f"--hosts: {NEEDED}") from None
        now = datetime.datetime.now(datetime.UTC).replace(microsecond=0)
        self.since = now - datetime.timedelta(days=1)
        self.until = now + datetime.timedelta(seconds=seconds)
        self._key: Any = ec.generate_private_key(ec.SECP256R1())
        self._name = _name("authority.desim")
        builder = self._builder("authority.desim", self._key).add_extension(
            _constraints(True), True
        )
        self._certificate = builder.sign(self._key, _hash())

    def identity(self, name: str) -> Identity:
        """A new key, and a certificate of it with that name."""
        from cryptography import x509
        from cryptography.hazmat.primitives import serialization as form
        from cryptography.hazmat.primitives.asymmetric import ec

        key = ec.generate_private_key(ec.SECP256R1())
        builder = self._builder(name, key).add_extension(_constraints(False), True)
        names = x509.SubjectAlternativeName([x509.DNSName(name)])
        signed = builder.add_extension(names, False).sign(self._key, _hash())
        secret = key.private_bytes(
            form.Encoding.PEM, form.PrivateFormat.PKCS8, form.NoEncryption()
        )  # fmt: skip
        texts = [one.public_bytes(form.Encoding.PEM) for one in (self._certificate, signed)]
        return Identity(*(text.decode() for text in (*texts, secret)))

    def _builder(self, name: str, key: Any) -> Any:
        from cryptography import x509

        return (
            x509.CertificateBuilder()
            .subject_name(_name(name))
            .issuer_name(self._name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(self.since)
            .not_valid_after(self.until)
        )


def _name(text: str) -> Any:
    from cryptography import x509

    return x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, text)])


def _constraints(authority: bool) -> Any:
    from cryptography import x509

    return x509.BasicConstraints(ca=authority, path_length=0 if authority else None)


def _hash() -> Any:
    from cryptography.hazmat.primitives import hashes

    return hashes.SHA256()


def context(identity: Identity, server: bool) -> ssl.SSLContext:
    """TLS 1.3 in which both sides must show a certificate of the identity's authority."""
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER if server else ssl.PROTOCOL_TLS_CLIENT)
    made.minimum_version = ssl.TLSVersion.TLSv1_3
    made.verify_mode = ssl.CERT_REQUIRED
    made.load_verify_locations(cadata=identity.authority)
    handle, path = tempfile.mkstemp()  # 0600; OpenSSL reads keys from files alone
    try:
        with os.fdopen(handle, "w") as file:
            file.write(identity.certificate + identity.key)
        made.load_cert_chain(path)
    finally:
        Path(path).unlink()
    return made


def name_of(sock: ssl.SSLSocket) -> str:
    """The name in the other side's certificate, which its authority has been checked for."""
    shown: Any = sock.getpeercert() or {}
    for part in shown.get("subject", ()):
        for key, value in part:
            if key == "commonName":
                return str(value)
    return ""
