//! TLS, always with verification of the server.

use std::{fmt, path::PathBuf, sync::Arc};

use leasehold_core::{EngineError, Fault};
use tokio::net::TcpStream;
use tokio_rustls::{
    TlsConnector,
    rustls::{
        self, ClientConfig, RootCertStore,
        crypto::ring,
        pki_types::{CertificateDer, PrivateKeyDer, ServerName, pem::PemObject},
    },
};

use crate::{config::Address, error::sort_connecting, stream::Bytes};

/// How a connection is encrypted and whom it trusts. Files are read at each connection, so that they can be replaced.
#[derive(Clone, Default)]
pub struct Tls {
    roots: Option<PathBuf>,
    identity: Option<(PathBuf, PathBuf)>,
    given: Option<Arc<ClientConfig>>,
}

impl Tls {
    /// Trusts the authorities that the operating system trusts.
    #[must_use]
    pub fn system() -> Self {
        Self::default()
    }

    /// All by a configuration of the caller's, made with the [`rustls`] of this crate; [`roots`](Self::roots) and
    /// [`identity`](Self::identity) add nothing to it.
    #[must_use]
    pub fn with(config: Arc<ClientConfig>) -> Self {
        Self { given: Some(config), ..Self::default() }
    }

    /// Trusts the authorities of this PEM file, and no others.
    #[must_use]
    pub fn roots(mut self, file: impl Into<PathBuf>) -> Self {
        self.roots = Some(file.into());
        self
    }

    /// Shows the server this certificate; its key is in the other file. Both PEM.
    #[must_use]
    pub fn identity(mut self, certificate: impl Into<PathBuf>, key: impl Into<PathBuf>) -> Self {
        self.identity = Some((certificate.into(), key.into()));
        self
    }

    pub(crate) async fn wrap(
        &self,
        stream: TcpStream,
        host: &str,
        address: &Address,
    ) -> Result<Box<dyn Bytes>, EngineError> {
        let wrong = |what: String| {
            EngineError::new(Fault::Misconfigured, format!("cannot connect to {address} by TLS: {what}"))
        };
        let config = self.config().map_err(wrong)?;
        let name = ServerName::try_from(host.to_owned()).map_err(|error| wrong(error.to_string()))?;
        match TlsConnector::from(config).connect(name, stream).await {
            Ok(stream) => Ok(Box::new(stream)),
            // The two do not speak the same, or do not trust each other: the next time will be no better.
            Err(error) if error.get_ref().is_some_and(|inner| inner.is::<rustls::Error>()) => {
                Err(wrong(error.to_string()))
            }
            Err(error) => Err(sort_connecting(error.into(), &address.to_string())),
        }
    }

    fn config(&self) -> Result<Arc<ClientConfig>, String> {
        if let Some(given) = &self.given {
            return Ok(Arc::clone(given));
        }
        let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(|error| error.to_string())?
            .with_root_certificates(self.trusted()?);
        let Some((certificate, key)) = &self.identity else {
            return Ok(Arc::new(builder.with_no_client_auth()));
        };
        let unreadable = |file: &PathBuf, error: &dyn fmt::Display| format!("{}: {error}", file.display());
        let chain = CertificateDer::pem_file_iter(certificate)
            .and_then(Iterator::collect)
            .map_err(|error| unreadable(certificate, &error))?;
        let key_der = PrivateKeyDer::from_pem_file(key).map_err(|error| unreadable(key, &error))?;
        let config = builder.with_client_auth_cert(chain, key_der).map_err(|error| error.to_string())?;
        Ok(Arc::new(config))
    }

    fn trusted(&self) -> Result<RootCertStore, String> {
        let mut trusted = RootCertStore::empty();
        let Some(file) = &self.roots else {
            trusted.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
            if trusted.is_empty() {
                return Err("the system trusts no authority: install ca-certificates, or give ca=".to_owned());
            }
            return Ok(trusted);
        };
        let unreadable = |error: &dyn fmt::Display| format!("{}: {error}", file.display());
        for certificate in CertificateDer::pem_file_iter(file).map_err(|error| unreadable(&error))? {
            let certificate = certificate.map_err(|error| unreadable(&error))?;
            trusted.add(certificate).map_err(|error| unreadable(&error))?;
        }
        if trusted.is_empty() {
            return Err(unreadable(&"it holds no certificate"));
        }
        Ok(trusted)
    }
}

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tls")
            .field("roots", &self.roots)
            .field("identity", &self.identity)
            .field("given", &self.given.is_some())
            .finish()
    }
}
