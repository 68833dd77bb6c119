"""Certificates for tests: an authority and the certificates that it signs."""

import datetime
import ssl
from contextlib import suppress
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from twinlog.cluster.remoting.tls.channel import TlsChannel
from twinlog.cluster.remoting.tls.config import TlsConfig
from twinlog.cluster.remoting.tls.contexts import server_context


class Authority:
    """Signs certificates and writes PEM files below a directory."""

    def __init__(self, directory: Path, name: str = "authority") -> None:
        self.directory = directory
        self.key = ec.generate_private_key(ec.SECP256R1())
        self.name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
        self.certificate = directory / f"{name}.pem"
        self.certificate.write_bytes(self._certificate(self.name, self.key.public_key(), is_authority=True))

    def issue(self, name: str, *, password: str | None = None) -> tuple[Path, Path]:
        """Certificate and key of one party."""
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
        certificate, private = self.directory / f"{name}.pem", self.directory / f"{name}.key"
        certificate.write_bytes(self._certificate(subject, key.public_key()))
        lock = serialization.BestAvailableEncryption(password.encode()) if password else serialization.NoEncryption()
        private.write_bytes(key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, lock))
        return certificate, private

    def _certificate(self, subject: x509.Name, key: ec.EllipticCurvePublicKey, *, is_authority: bool = False) -> bytes:
        now = datetime.datetime.now(datetime.UTC)
        certificate = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self.name)
            .public_key(key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(hours=1))
            .not_valid_after(now + datetime.timedelta(days=1))
            .add_extension(x509.BasicConstraints(ca=is_authority, path_length=None), critical=True)
            .sign(self.key, hashes.SHA256())
        )
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
