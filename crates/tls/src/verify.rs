//! How much of a server's certificate is verified.

use std::sync::Arc;

use tokio_rustls::rustls::{
    CertificateError, DigitallySignedStruct, Error, RootCertStore, SignatureScheme,
    client::{
        WebPkiServerVerifier,
        danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    },
    crypto::{CryptoProvider, WebPkiSupportedAlgorithms, verify_tls12_signature, verify_tls13_signature},
    pki_types::{CertificateDer, ServerName, UnixTime},
};

/// How much of a server's certificate is verified, with the names that database clients use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Verify {
    /// A trusted authority must have signed the certificate, which must be for this host: `verify-full`,
    /// `VERIFY_IDENTITY`.
    #[default]
    Full,
    /// A trusted authority must have signed the certificate: `verify-ca`, `VERIFY_CA`.
    Authority,
    /// Nothing is verified: an eavesdropper reads nothing, but any server that answers counts as the right one.
    Nothing,
}

/// A verifier that does not check the host name, or that checks nothing.
#[derive(Debug)]
pub(crate) struct PartialVerifier {
    /// Verifies that a trusted authority signed the certificate. `None`: nothing is verified.
    authority: Option<Arc<WebPkiServerVerifier>>,
    provider: Arc<CryptoProvider>,
}

impl PartialVerifier {
    /// The signature algorithms that are accepted.
    fn algorithms(&self) -> &WebPkiSupportedAlgorithms {
        &self.provider.signature_verification_algorithms
    }

    /// A verifier that accepts any host name; without `trusted` authorities it verifies nothing.
    pub(crate) fn of(trusted: Option<RootCertStore>, provider: Arc<CryptoProvider>) -> Result<Self, String> {
        let verifier = |trusted| {
            WebPkiServerVerifier::builder_with_provider(Arc::new(trusted), Arc::clone(&provider)).build()
        };
        let authority = trusted.map(verifier).transpose().map_err(|error| error.to_string())?;
        Ok(Self { authority, provider })
    }
}

impl ServerCertVerifier for PartialVerifier {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let Some(authority) = &self.authority else { return Ok(ServerCertVerified::assertion()) };
        match authority.verify_server_cert(certificate, intermediates, name, ocsp, now) {
            // The host name is checked last, so everything else is valid here.
            Err(Error::InvalidCertificate(
                CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
            )) => Ok(ServerCertVerified::assertion()),
            verified => verified,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, certificate, signed, self.algorithms())
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, certificate, signed, self.algorithms())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms().supported_schemes()
    }
}
