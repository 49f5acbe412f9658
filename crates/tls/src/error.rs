//! Classifies errors of a handshake by whether a retry may help.

use std::io;

use tokio_rustls::rustls;

/// The hint when the bytes of the other side are not TLS.
const NOT_TLS_HINT: &str = "does the server speak TLS on this port?";

/// The name that rustls prints for an authority's certificate that a server presents as its own.
const AUTHORITY_ERROR: &str = "Other(OtherError(CaUsedAsEndEntity))";

/// The explanation in place of the name [`AUTHORITY_ERROR`].
const AUTHORITY_EXPLANATION: &str = "the server presents the certificate of an authority (CA:TRUE) as its own: \
    give it a certificate with CA:FALSE, signed by this authority";

/// How rustls begins the text of an alert from the other side.
const ALERT_PREFIX: &str = "received fatal alert";

/// Why an encrypted connection could not be made.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// The two sides have no TLS version or cipher in common, they do not trust each other, a file cannot be used, or
    /// no authority is trusted: a retry does not help.
    #[error("{0}")]
    Wrong(String),
    /// The connection broke: a retry may help.
    #[error(transparent)]
    Broken(io::Error),
}

/// Classifies an error of a handshake.
pub(crate) fn classify(error: io::Error) -> TlsError {
    match error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>()) {
        Some(rustls::Error::InvalidMessage(_)) => TlsError::Wrong(format!("{error}: {NOT_TLS_HINT}")),
        Some(_) => TlsError::Wrong(explain_error(&error.to_string())),
        None if matches!(error.kind(), io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset) => {
            let what = format!("the server closed the connection during the TLS handshake: {NOT_TLS_HINT}");
            TlsError::Broken(io::Error::new(error.kind(), what))
        }
        None => TlsError::Broken(error),
    }
}

/// The text of an error of rustls, with a sentence for users in place of a name that only rustls uses.
#[must_use]
pub fn explain_error(text: &str) -> String {
    text.replace(AUTHORITY_ERROR, AUTHORITY_EXPLANATION)
}

/// Whether this is the text of an error by which the other side refuses this client. A server may refuse our
/// certificate only after the handshake: then its alert arrives at the first read, and a client library may have hidden
/// the type of the error.
#[must_use]
pub fn is_alert(text: &str) -> bool {
    text.starts_with(ALERT_PREFIX)
}

#[cfg(test)]
mod tests {
    use rustls::{AlertDescription, Error};

    use super::*;

    #[test]
    fn an_alert_is_recognized_by_its_text() {
        assert!(is_alert(&Error::AlertReceived(AlertDescription::CertificateRequired).to_string()));
        assert!(!is_alert(&Error::DecryptError.to_string()));
    }
}
