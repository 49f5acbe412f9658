//! The certificate of the server.

use std::{io::BufReader, sync::Arc};

use tokio_rustls::{
    TlsAcceptor,
    rustls::{
        ServerConfig,
        crypto::ring,
        pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
    },
};

use crate::{StartError, TlsFiles, secret::open_private};

/// Reads the certificate and its key. Both are read once: another certificate needs another start.
pub(crate) fn acceptor(files: &TlsFiles) -> Result<TlsAcceptor, StartError> {
    let unusable = |file: &std::path::Path, error: &dyn std::fmt::Display| {
        StartError::File(format!("{}: {error}", file.display()))
    };
    let of_certificate = |error: &dyn std::fmt::Display| unusable(&files.certificate, error);
    let of_key = |error: &dyn std::fmt::Display| unusable(&files.key, error);
    let chain: Vec<_> = CertificateDer::pem_file_iter(&files.certificate)
        .and_then(Iterator::collect)
        .map_err(|error| of_certificate(&error))?;
    let key = open_private(&files.key).map_err(|error| of_key(&error))?;
    let key = PrivateKeyDer::from_pem_reader(BufReader::new(key)).map_err(|error| of_key(&error))?;
    let mut config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .and_then(|builder| builder.with_no_client_auth().with_single_cert(chain, key))
        .map_err(|error| of_certificate(&error))?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(TlsAcceptor::from(Arc::new(config)))
}
