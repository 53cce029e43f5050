"""Certificates made on the spot: an authority, and whom it signs."""

from __future__ import annotations

import datetime
import ipaddress
from pathlib import Path
from typing import NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

_NOW = datetime.datetime.now(datetime.UTC)
_DAY = datetime.timedelta(days=1)


class Pair(NamedTuple):
    """A certificate and its key, as PEM files."""

    cert: str
    key: str


class Authority:
    """Signs certificates; ``trust`` is its own."""

    def __init__(self, folder: Path, name: str = "authority") -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        made = self._builder(self._name, self._key.public_key(), _NOW + _DAY)
        made = made.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        self.trust = str(folder / f"{name}.pem")
        _write(self.trust, made.sign(self._key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM))

    def sign(self, name: str, *, expired: bool = False, password: str = "") -> Pair:
        """A certificate for this machine's loopback address."""
        key = ec.generate_private_key(ec.SECP256R1())
        until = _NOW - _DAY if expired else _NOW + _DAY
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        made = self._builder(subject, key.public_key(), until).add_extension(
            x509.SubjectAlternativeName(
                [x509.IPAddress(ipaddress.ip_address("127.0.0.1")), x509.DNSName("localhost")]
            ),
            critical=False,
        )
        pair = Pair(str(self._folder / f"{name}.pem"), str(self._folder / f"{name}.key"))
        hidden: serialization.KeySerializationEncryption = serialization.NoEncryption()
        if password:
            hidden = serialization.BestAvailableEncryption(password.encode())
        _write(pair.cert, made.sign(self._key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM))
        _write(
            pair.key,
            key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, hidden),
        )
        return pair

    def _builder(
        self, subject: x509.Name, key: ec.EllipticCurvePublicKey, until: datetime.datetime
    ) -> x509.CertificateBuilder:
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(_NOW - 2 * _DAY)
            .not_valid_after(until)
        )


def _write(path: str, data: bytes) -> None:
    Path(path).write_bytes(data)
