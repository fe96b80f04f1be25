//! TLS with the mode and the certificates of the URL.

use crate::error::{Code, Error, Result};
use crate::store::url::{PostgresUrl, TlsMode};
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::{CertificateError, ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};
use std::path::Path;
use std::sync::Arc;
use tokio_postgres_rustls::MakeRustlsConnect;

/// The encryption of connections, and the certificates that they trust.
pub(super) fn connector(url: &PostgresUrl) -> Result<MakeRustlsConnect> {
    let provider = Arc::new(ring::default_provider());
    let verifies = matches!(url.tls, TlsMode::VerifyCa | TlsMode::VerifyFull);
    let trusted = if verifies { Some(verifier(url.root_certificates.as_deref(), &provider)?) } else { None };
    let verifier = Verifier { trusted, checks_name: url.tls == TlsMode::VerifyFull, provider: provider.clone() };
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| unusable("TLS", error))?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(verifier));
    let config = match &url.client_certificate {
        None => config.with_no_client_auth(),
        Some((certificate, key)) => {
            let shown = key.display();
            let private =
                PrivateKeyDer::from_pem_file(key).map_err(|error| unusable(format!("sslkey '{shown}'"), error))?;
            config.with_client_auth_cert(certificates("sslcert", certificate)?, private).map_err(|error| {
                unusable(format!("sslcert '{}' with sslkey '{shown}'", certificate.display()), error)
            })?
        }
    };
    Ok(MakeRustlsConnect::new(config))
}

fn verifier(roots: Option<&Path>, provider: &Arc<CryptoProvider>) -> Result<Arc<WebPkiServerVerifier>> {
    let mut store = RootCertStore::empty();
    let found = match roots {
        Some(path) => {
            let found = certificates("sslrootcert", path)?;
            for certificate in found {
                store.add(certificate).map_err(|error| unusable(format!("sslrootcert '{}'", path.display()), error))?;
            }
            format!("sslrootcert '{}'", path.display())
        }
        None => {
            // The store of a machine often has a certificate that is too old to be read; the others are used.
            store.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
            "the machine's store of authorities, as there is no sslrootcert,".to_owned()
        }
    };
    if store.is_empty() {
        return Err(unusable(found, "it holds no certificate"));
    }
    WebPkiServerVerifier::builder_with_provider(Arc::new(store), provider.clone())
        .build()
        .map_err(|error| unusable(found, error))
}

fn certificates(parameter: &str, path: &Path) -> Result<Vec<CertificateDer<'static>>> {
    CertificateDer::pem_file_iter(path)
        .and_then(Iterator::collect)
        .map_err(|error| unusable(format!("{parameter} '{}'", path.display()), error))
}

fn unusable(what: impl std::fmt::Display, why: impl std::fmt::Display) -> Error {
    Error::new(Code::BAD_URL, format!("{what} cannot be used: {why}"))
}

/// Verifies as much as the mode asks for.
#[derive(Debug)]
struct Verifier {
    /// `None`: accepts any certificate.
    trusted: Option<Arc<WebPkiServerVerifier>>,
    checks_name: bool,
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let Some(trusted) = &self.trusted else { return Ok(ServerCertVerified::assertion()) };
        match trusted.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now) {
            // The chain is verified before the name.
            Err(rustls::Error::InvalidCertificate(
                CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
            )) if !self.checks_name => Ok(ServerCertVerified::assertion()),
            verdict => verdict,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, certificate, signed, &self.provider.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, certificate, signed, &self.provider.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}
