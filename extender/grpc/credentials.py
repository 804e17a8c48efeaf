"""TLS of the gRPC server: certificates as `extender.kube.certificates` follows them, in gRPC's form."""

from pathlib import Path

import grpc

from extender.config.settings import GrpcSettings
from extender.grpc.opening import GrpcError
from extender.kube.certificates import CertificateError, CertificateFiles, Certificates, Pem


def certificates_of(settings: GrpcSettings) -> Certificates | None:
    """The certificates of the server; None: no TLS.

    Raises:
        GrpcError: a file cannot be used.
    """
    if not settings.tls:
        return None
    client_ca = Path(settings.client_ca) if settings.client_ca else None
    files = CertificateFiles(Path(settings.certificate), Path(settings.key), client_ca, required=client_ca is not None)
    try:
        return Certificates(files)
    except CertificateError as error:
        raise GrpcError(f"grpc: {error}") from error


def server_credentials(certificates: Certificates) -> grpc.ServerCredentials:
    """Credentials that use the newest certificates for each new connection."""
    return grpc.dynamic_ssl_server_credentials(
        _configuration(certificates.pem),
        Newest(certificates),
        require_client_authentication=certificates.files.required,
    )


class Newest:
    """gRPC calls it for each connection."""

    def __init__(self, certificates: Certificates) -> None:
        self._certificates = certificates
        self._used = certificates.pem

    def __call__(self) -> grpc.ServerCertificateConfiguration | None:
        """The configuration if the certificates have changed, else None: the former one stays in use."""
        found = self._certificates.pem
        if found is self._used:
            return None
        self._used = found
        return _configuration(found)


def _configuration(pem: Pem) -> grpc.ServerCertificateConfiguration:
    return grpc.ssl_server_certificate_configuration([(pem.key, pem.certificate)], pem.client_ca or None)
