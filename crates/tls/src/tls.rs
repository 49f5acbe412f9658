//! The TLS configuration of a connection: which authorities it trusts, how it identifies itself, how much it
//! verifies.

use std::{
    fmt, fs,
    path::{Path, PathBuf},
    sync::Arc,
};

use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::{
    TlsConnector,
    client::TlsStream,
    rustls::{
        self, ClientConfig, RootCertStore,
        crypto::ring,
        pki_types::{CertificateDer, PrivateKeyDer, ServerName, pem::PemObject},
    },
};

use crate::{
    error::{TlsError, classify},
    verify::{PartialVerifier, Verify},
};

/// The TLS configuration of a connection. Its files are read each time a connection is made, so that they can be
/// replaced.
#[derive(Clone, Default)]
pub struct Tls {
    /// The file of the trusted authorities; `None`: the authorities of the operating system.
    roots: Option<PathBuf>,
    /// The files of the client's certificate and of its key.
    identity: Option<(PathBuf, PathBuf)>,
    verify: Verify,
    /// The configuration of the caller, which replaces the fields above.
    custom: Option<Arc<ClientConfig>>,
}

/// A [`Tls`] in another form: the certificates of the trusted authorities, and the paths of the client's files.
#[derive(Debug)]
pub struct Material {
    /// The certificates of the trusted authorities, each in DER.
    pub authorities: Vec<Vec<u8>>,
    /// The PEM files of the certificate that is presented to the server, and of its key.
    pub identity: Option<(PathBuf, PathBuf)>,
    /// How much of the server's certificate is verified.
    pub verify: Verify,
}

impl Tls {
    /// Trusts the authorities that the operating system trusts.
    #[must_use]
    pub fn system() -> Self {
        Self::default()
    }

    /// Uses a configuration of the caller, built with the [`rustls`](crate::rustls) of this crate;
    /// [`roots`](Self::roots), [`identity`](Self::identity) and [`verify`](Self::verify) do not change it.
    #[must_use]
    pub fn with(config: Arc<ClientConfig>) -> Self {
        Self { custom: Some(config), ..Self::default() }
    }

    /// Trusts the authorities of this PEM file, and no others.
    #[must_use]
    pub fn roots(mut self, file: impl Into<PathBuf>) -> Self {
        self.roots = Some(file.into());
        self
    }

    /// Presents this certificate to the server; its key is in the other file. Both files are PEM.
    #[must_use]
    pub fn identity(mut self, certificate: impl Into<PathBuf>, key: impl Into<PathBuf>) -> Self {
        self.identity = Some((certificate.into(), key.into()));
        self
    }

    /// Sets how much of the server's certificate is verified; [`Verify::Full`] by default.
    #[must_use]
    pub fn verify(mut self, verify: Verify) -> Self {
        self.verify = verify;
        self
    }

    /// Checks that the files can be used.
    ///
    /// # Errors
    /// [`TlsError::Wrong`] if they cannot.
    pub fn check(&self) -> Result<(), TlsError> {
        self.config(&[]).map(drop).map_err(TlsError::Wrong)
    }

    /// Encrypts a stream to `host`; with [`Verify::Full`], the certificate must be for this name. Offers `protocols` to
    /// the server (by ALPN), or the protocols of the caller's configuration if it has any.
    ///
    /// # Errors
    /// [`TlsError`] says whether a retry may help.
    ///
    /// # Cancel safety
    /// Dropping the future closes the stream.
    pub async fn connect<S: AsyncRead + AsyncWrite + Unpin>(
        &self,
        stream: S,
        host: &str,
        protocols: &[&[u8]],
    ) -> Result<TlsStream<S>, TlsError> {
        let config = self.config(protocols).map_err(TlsError::Wrong)?;
        let name =
            ServerName::try_from(host.to_owned()).map_err(|error| TlsError::Wrong(error.to_string()))?;
        TlsConnector::from(config).connect(name, stream).await.map_err(classify)
    }

    /// The rustls configuration, with these protocols unless the caller's configuration has protocols of its own.
    fn config(&self, protocols: &[&[u8]]) -> Result<Arc<ClientConfig>, String> {
        let mut config = match &self.custom {
            Some(custom) => Arc::clone(custom),
            None => Arc::new(self.build()?),
        };
        if config.alpn_protocols.is_empty() && !protocols.is_empty() {
            Arc::make_mut(&mut config).alpn_protocols = protocols.iter().map(|name| name.to_vec()).collect();
        }
        Ok(config)
    }

    /// Builds the rustls configuration from the files.
    fn build(&self) -> Result<ClientConfig, String> {
        let provider = Arc::new(ring::default_provider());
        let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .map_err(|error| error.to_string())?;
        let builder = if self.verify == Verify::Full {
            builder.with_root_certificates(self.trusted_roots()?)
        } else {
            let trusted_roots =
                (self.verify == Verify::Authority).then(|| self.trusted_roots()).transpose()?;
            builder
                .dangerous()
                .with_custom_certificate_verifier(Arc::new(PartialVerifier::of(trusted_roots, provider)?))
        };
        let Some((certificate, key)) = &self.identity else {
            return Ok(builder.with_no_client_auth());
        };
        let unreadable = |file: &PathBuf, error: &dyn fmt::Display| format!("{}: {error}", file.display());
        check_regular(certificate)?;
        check_regular(key)?;
        let chain = CertificateDer::pem_file_iter(certificate)
            .and_then(Iterator::collect)
            .map_err(|error| unreadable(certificate, &error))?;
        let key_der = PrivateKeyDer::from_pem_file(key).map_err(|error| unreadable(key, &error))?;
        builder.with_client_auth_cert(chain, key_der).map_err(|error| error.to_string())
    }

    /// The trusted authorities.
    fn trusted_roots(&self) -> Result<RootCertStore, String> {
        let mut trusted_roots = RootCertStore::empty();
        let Some(file) = &self.roots else {
            trusted_roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
            if trusted_roots.is_empty() {
                return Err("the system trusts no authority: install ca-certificates, or give ca=".to_owned());
            }
            return Ok(trusted_roots);
        };
        let unreadable = |error: &dyn fmt::Display| format!("{}: {error}", file.display());
        check_regular(file)?;
        for certificate in CertificateDer::pem_file_iter(file).map_err(|error| unreadable(&error))? {
            let certificate = certificate.map_err(|error| unreadable(&error))?;
            trusted_roots.add(certificate).map_err(|error| unreadable(&error))?;
        }
        if trusted_roots.is_empty() {
            return Err(unreadable(&"it contains no certificate"));
        }
        Ok(trusted_roots)
    }

    /// The configuration for a client library that builds its own rustls configuration with the process's default
    /// provider of cryptography. Sets that provider if there is none.
    ///
    /// # Errors
    /// [`TlsError::Wrong`] if the caller gave a configuration of its own, or a file cannot be used.
    pub fn material(&self) -> Result<Material, TlsError> {
        if self.custom.is_some() {
            let why =
                "this engine accepts TLS files (ca, cert and key), but no TLS configuration of the caller";
            return Err(TlsError::Wrong(why.to_owned()));
        }
        // Checks everything here that the client library would refuse, for a clear error message.
        self.build().map_err(TlsError::Wrong)?;
        if rustls::crypto::CryptoProvider::get_default().is_none() {
            // Another thread may have set one at the same moment; either one will do.
            let _ = ring::default_provider().install_default();
        }
        let authorities = match &self.roots {
            _ if self.verify == Verify::Nothing => Ok(Vec::new()),
            Some(file) => {
                CertificateDer::pem_file_iter(file).and_then(Iterator::collect::<Result<Vec<_>, _>>)
            }
            None => Ok(rustls_native_certs::load_native_certs().certs),
        };
        let authorities = authorities.map_err(|error| TlsError::Wrong(error.to_string()))?;
        let authorities = authorities.into_iter().map(|authority| authority.to_vec()).collect();
        Ok(Material { authorities, identity: self.identity.clone(), verify: self.verify })
    }
}

/// Refuses a file that is not a regular file: opening a pipe would wait for a writer.
fn check_regular(file: &Path) -> Result<(), String> {
    match fs::metadata(file) {
        Ok(metadata) if metadata.is_file() => Ok(()),
        Ok(_) => Err(format!("{}: it is no regular file", file.display())),
        Err(error) => Err(format!("{}: {error}", file.display())),
    }
}

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tls")
            .field("roots", &self.roots)
            .field("identity", &self.identity)
            .field("verify", &self.verify)
            .field("given", &self.custom.is_some())
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use tokio::net::{TcpListener, TcpStream};

    use super::*;

    /// Trusts no authority, and offers these protocols.
    fn custom(protocols: &[&str]) -> Tls {
        let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()));
        let builder = builder.with_safe_default_protocol_versions().unwrap();
        let mut config = builder.with_root_certificates(RootCertStore::empty()).with_no_client_auth();
        config.alpn_protocols = protocols.iter().map(|name| name.as_bytes().to_vec()).collect();
        Tls::with(Arc::new(config))
    }

    #[test]
    fn a_configuration_of_the_caller_keeps_its_own_protocols() {
        let offered = |tls: &Tls, wanted: &[&[u8]]| tls.config(wanted).unwrap().alpn_protocols.clone();
        assert_eq!(offered(&custom(&["own"]), &[b"h2"]), [b"own"]);
        let without = custom(&[]);
        assert_eq!(offered(&without, &[b"h2"]), [b"h2"]);
        assert!(offered(&without, &[]).is_empty(), "the protocols of one connection do not affect another");
    }

    /// The error of encrypting a stream to a server that sends only these bytes; `None`: that closes the connection.
    async fn connect_error(tls: &Tls, reply: Option<&[u8]>) -> TlsError {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let client = async {
            let stream = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
            tls.connect(stream, "localhost", &[]).await.unwrap_err()
        };
        let server = async {
            let (stream, _) = listener.accept().await.unwrap();
            let reply = reply?;
            stream.writable().await.unwrap();
            assert_eq!(stream.try_write(reply).unwrap(), reply.len());
            // The stream stays open: closing it could overtake the bytes.
            Some(stream)
        };
        tokio::join!(client, server).0
    }

    #[tokio::test]
    async fn only_a_broken_connection_is_retryable() {
        let no_tls = connect_error(&custom(&[]), Some(b"-ERR Protocol error\r\n")).await;
        assert!(matches!(no_tls, TlsError::Wrong(_)), "{no_tls}");
        let unreadable = connect_error(&Tls::system().roots("/missing"), None).await;
        assert!(matches!(&unreadable, TlsError::Wrong(why) if why.contains("/missing")), "{unreadable}");
        let broken = connect_error(&custom(&[]), None).await;
        assert!(matches!(broken, TlsError::Broken(_)), "{broken}");
    }
}
