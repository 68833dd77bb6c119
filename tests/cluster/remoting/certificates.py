"""Certificates for tests: an authority and the certificates that it signs."""

import datetime
import ipaddress
import ssl
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from twinlog.cluster.remoting.tls.channel import TlsChannel
from twinlog.cluster.remoting.tls.config import TlsConfig
from twinlog.cluster.remoting.tls.contexts import server_context

_USAGES = {"server": x509.ExtendedKeyUsageOID.SERVER_AUTH, "client": x509.ExtendedKeyUsageOID.CLIENT_AUTH}


class Authority:
    """Signs certificates and writes PEM files below a directory."""

    def __init__(self, directory: Path, name: str = "authority") -> None:
        self.directory = directory
        self.key = ec.generate_private_key(ec.SECP256R1())
        self.name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
        self.certificate = directory / f"{name}.pem"
        self.certificate.write_bytes(self._certificate(self.name, self.key.public_key(), is_authority=True))

    def issue(
        self,
        name: str,
        *,
        password: str | None = None,
        subject: str | None = None,
        addresses: Sequence[str] = (),
        usages: Sequence[str] = (),
    ) -> tuple[Path, Path]:
        """Certificate and key of one party; `subject`: another CommonName, "": none; `usages`: server, client; none: any."""
        key = ec.generate_private_key(ec.SECP256R1())
        common_name = name if subject is None else subject
        of = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, common_name)] if common_name else [])
        extensions: list[x509.ExtensionType] = []
        if addresses:
            extensions.append(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address(a)) for a in addresses]))
        if usages:
            extensions.append(x509.ExtendedKeyUsage([_USAGES[each] for each in usages]))
        certificate, private = self.directory / f"{name}.pem", self.directory / f"{name}.key"
        certificate.write_bytes(self._certificate(of, key.public_key(), extensions=extensions))
        lock = serialization.BestAvailableEncryption(password.encode()) if password else serialization.NoEncryption()
        private.write_bytes(key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, lock))
        return certificate, private

    def _certificate(
        self,
        subject: x509.Name,
        key: ec.EllipticCurvePublicKey,
        *,
        is_authority: bool = False,
        extensions: Sequence[x509.ExtensionType] = (),
    ) -> bytes:
        now = datetime.datetime.now(datetime.UTC)
        builder = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self.name)
            .public_key(key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(hours=1))
            .not_valid_after(now + datetime.timedelta(days=1))
            .add_extension(x509.BasicConstraints(ca=is_authority, path_length=None), critical=True)
        )
        for extension in extensions:
            builder = builder.add_extension(extension, critical=False)
        certificate = builder.sign(self.key, hashes.SHA256())
        return certificate.public_bytes(serialization.Encoding.PEM)


def shaken():
    """Both ends of a connection in memory."""
    server = TlsChannel(server_context(TlsConfig()))
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    peer = context.wrap_bio(incoming, outgoing)
    while not server.is_open:
        with suppress(ssl.SSLWantReadError):
            peer.do_handshake()
        server.shake_hands(outgoing.read())
        incoming.write(b"".join(server.encrypt(())))
    peer.do_handshake()
    return server, peer, incoming, outgoing
