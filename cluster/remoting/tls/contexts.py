"""SSL contexts, from files or from a certificate that is generated.

Applications' clients import this module: who keeps a context up to date is in renewed.py. Source: TlsHelper.java (4.9.7).
"""

import datetime
import os
import platform
import ssl
from pathlib import Path

from twinlog.cluster.remoting.errors import TlsFilesError
from twinlog.cluster.remoting.tls.config import ClientAuth, TlsConfig
from twinlog.store.util.late_logger import LateLogger

log = LateLogger(__name__)

_VALID_DAYS = 3650
_VERIFY = {
    ClientAuth.none: ssl.CERT_NONE,
    ClientAuth.optional: ssl.CERT_OPTIONAL,
    ClientAuth.require: ssl.CERT_REQUIRED,
}


def server_context(config: TlsConfig) -> ssl.SSLContext:
    """Make a server's context. Raises TlsFilesError."""
    refuse_void(config.server_test_mode, config.server_files)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.options |= ssl.OP_NO_RENEGOTIATION
    if config.server_test_mode:
        _load_own(context)
        return context
    if config.server_cert is None:
        raise TlsFilesError("tls.test.mode.enable=false needs tls.server.certPath and tls.server.keyPath")
    _load_chain(context, config.server_cert, config.server_key, config.server_key_password, "tls.server")
    if config.auth_client:
        _trust(context, config.server_trust, "tls.server.trustCertPath")
        context.verify_mode = _VERIFY[config.need_client_auth]
    elif config.need_client_auth is not ClientAuth.none:
        log.warning(
            "client certificates not requested: tls.server.authClient=true is needed to check them",
            need_client_auth=config.need_client_auth.value,
        )
    return context


def refuse_void(test_mode: bool, keys: tuple[str, ...]) -> None:
    """Refuse files and checks that test mode would silently ignore. Raises TlsFilesError."""
    if test_mode and keys:
        raise TlsFilesError(
            f"tls.test.mode.enable=true makes {', '.join(keys)} void: remove it, or these, or set it to false"
        )


def client_context(config: TlsConfig) -> ssl.SSLContext:
    """Make a client's context. Without tls.client.authServer it trusts every server, as RocketMQ's clients do.

    Raises TlsFilesError.
    """
    refuse_void(config.client_test_mode, config.client_files)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    if config.auth_server:
        _trust(context, config.client_trust, "tls.client.trustCertPath")
    else:
        context.verify_mode = ssl.CERT_NONE
    if config.client_cert is not None:
        _load_chain(context, config.client_cert, config.client_key, config.client_key_password, "tls.client")
    return context


def _load_chain(context: ssl.SSLContext, certificate: Path, key: Path | None, password: str | None, keys: str) -> None:
    def ask() -> str:  # Without it OpenSSL would ask at the terminal.
        if password is None:
            raise TlsFilesError(f"{keys}.keyPath={key}: the key has a password, set {keys}.keyPassword")
        return password

    for name, path in ((f"{keys}.certPath", certificate), (f"{keys}.keyPath", key)):
        if path is not None and not os.access(path.expanduser(), os.R_OK):
            raise TlsFilesError(f"{name}={path}: the file cannot be read")
    try:
        context.load_cert_chain(certificate.expanduser(), key.expanduser() if key is not None else None, ask)
    except OSError as error:  # SSLError is one.
        reason = getattr(error, "reason", None) or error
        raise TlsFilesError(f"{keys}.certPath={certificate}, {keys}.keyPath={key}: {reason}") from error


def _trust(context: ssl.SSLContext, file: Path | None, name: str) -> None:
    if file is None:
        context.load_default_certs()
        return
    try:
        context.load_verify_locations(file.expanduser())
    except OSError as error:
        raise TlsFilesError(f"{name}={file}: {getattr(error, 'reason', None) or error}") from error


def _load_own(context: ssl.SSLContext) -> None:
    """Generate a certificate and load it from a memfd: ssl reads only files, and the key should not be on the disk.

    Raises TlsFilesError.
    """
    try:
        certificate = self_signed()
    except (ImportError, ValueError) as error:
        raise TlsFilesError(
            f"no certificate can be generated: {error}. Name one with tls.server.certPath and tls.server.keyPath"
        ) from error
    descriptor = os.memfd_create("certificate")
    try:
        os.write(descriptor, certificate)
        context.load_cert_chain(f"/proc/self/fd/{descriptor}")
    finally:
        os.close(descriptor)


def self_signed() -> bytes:
    """Generate a private key and a self-signed certificate for it; PEM.

    Its name is this machine's, or localhost where that is not valid in a certificate. Raises ImportError without the package
    cryptography.
    """
    from cryptography import x509  # Takes 0.1 s to import, and most processes never generate a certificate.
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    name = platform.node()
    if not name or not name.isascii():
        name = "localhost"
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name[:64])])
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=_VALID_DAYS))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
        .sign(key, hashes.SHA256())
    )
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return private + certificate.public_bytes(serialization.Encoding.PEM)
