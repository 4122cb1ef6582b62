"""Certificates and tokens of one cluster, made afresh at each `up` and gone with it."""

from __future__ import annotations

import datetime
import ipaddress
import secrets
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from dispatch_local.layout import SERVICE_ADDRESS, Addresses

VALID = datetime.timedelta(days=365)
SERVER_NAMES = (
    "localhost",
    "kubernetes",
    "kubernetes.default",
    "kubernetes.default.svc",
    "kubernetes.default.svc.cluster.local",
)
FRONT_PROXY = "front-proxy-client"
"""Who the API server is to API servers behind Services, such as Kueue's: these believe it who is asking."""
_KEY_USAGES = (
    "digital_signature",
    "content_commitment",
    "key_encipherment",
    "data_encipherment",
    "key_agreement",
    "key_cert_sign",
    "crl_sign",
    "encipher_only",
    "decipher_only",
)


@dataclass(frozen=True)
class User:
    """Someone the API server knows by a token."""

    name: str
    groups: tuple[str, ...] = ()


def service_account(namespace: str, name: str) -> User:
    """Return the user that pods of this ServiceAccount are, groups included."""
    return User(
        f"system:serviceaccount:{namespace}:{name}",
        ("system:serviceaccounts", f"system:serviceaccounts:{namespace}"),
    )


@dataclass(frozen=True)
class Authority:
    """A certificate authority that lives in memory: nobody can sign anything after `up` is done."""

    key: ec.EllipticCurvePrivateKey
    certificate: x509.Certificate

    @classmethod
    def create(cls) -> Authority:
        """Make a new authority."""
        key = ec.generate_private_key(ec.SECP256R1())
        # Not the name of any certificate it issues: that would pass for self-signed.
        name = _name("dispatch-local authority")
        usage = dict.fromkeys(_KEY_USAGES, False) | {"key_cert_sign": True, "crl_sign": True}
        builder = (
            _builder(name, name, key)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(x509.KeyUsage(**usage), critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        )
        return cls(key, builder.sign(key, hashes.SHA256()))

    def issue(self, directory: Path, file: str, common_name: str, **options: object) -> None:
        """Write `file`.crt and `file`.key for a server (`addresses=`) or a client (`organization=`)."""
        key = ec.generate_private_key(ec.SECP256R1())
        organization = options.get("organization")
        builder = _builder(
            _name(common_name, organization if isinstance(organization, str) else None),
            self.certificate.subject,
            key,
        )
        usage = ExtendedKeyUsageOID.CLIENT_AUTH
        addresses = options.get("addresses")
        if isinstance(addresses, tuple):
            usage = ExtendedKeyUsageOID.SERVER_AUTH
            names: list[x509.GeneralName] = [x509.DNSName(name) for name in SERVER_NAMES]
            names += [x509.IPAddress(ipaddress.ip_address(address)) for address in addresses]
            builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
        builder = builder.add_extension(x509.ExtendedKeyUsage([usage]), critical=False).add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(self.key.public_key()), critical=False
        )
        certificate = builder.sign(self.key, hashes.SHA256())
        (directory / f"{file}.crt").write_bytes(_pem(certificate))
        write_private(directory / f"{file}.key", private_pem(key))


def _name(common_name: str, organization: str | None = None) -> x509.Name:
    parts = [x509.NameAttribute(NameOID.COMMON_NAME, common_name)]
    if organization:
        parts.append(x509.NameAttribute(NameOID.ORGANIZATION_NAME, organization))
    return x509.Name(parts)


def _builder(subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        # An hour back: clocks of virtual machines jump.
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + VALID)
    )


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


def private_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    """Return the key in the form that Go and OpenSSL read."""
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )


def write_private(path: Path, content: bytes) -> None:
    """Write a file that only its owner can read, from the first moment on."""
    path.touch(mode=0o600)
    path.write_bytes(content)


def write(directory: Path, addresses: Addresses, users: dict[str, User]) -> dict[str, str]:
    """Write all keys, certificates and the token file; returns the token of each user by its key."""
    directory.mkdir(mode=0o700)
    authority = Authority.create()
    (directory / "ca.crt").write_bytes(_pem(authority.certificate))
    # One certificate for every listener: API server, kubelet, webhooks, health ports.
    authority.issue(
        directory,
        "tls",
        "dispatch-local",
        addresses=("127.0.0.1", SERVICE_ADDRESS, addresses.cluster),
    )
    authority.issue(directory, "kubelet-client", "kube-apiserver-kubelet-client", organization="system:masters")
    authority.issue(directory, "front-proxy", FRONT_PROXY)
    service_account_key = ec.generate_private_key(ec.SECP256R1())
    write_private(directory / "service-account.key", private_pem(service_account_key))
    (directory / "service-account.pub").write_bytes(
        service_account_key.public_key().public_bytes(
            serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
        )
    )
    tokens = {key: secrets.token_urlsafe(32) for key in users}
    lines = [f'{tokens[key]},{user.name},{user.name},"{",".join(user.groups)}"\n' for key, user in users.items()]
    write_private(directory / "tokens.csv", "".join(lines).encode())
    return tokens
