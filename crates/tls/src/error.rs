//! Sorts what a handshake says into what it means for the next one.

use std::io;

use tokio_rustls::rustls;

/// What to ask when the bytes of the other side are none of TLS.
const IS_PLAIN: &str = "does the server speak TLS on this port?";

/// How rustls calls the certificate of an authority that a server shows as its own.
const AUTHORITY: &str = "Other(OtherError(CaUsedAsEndEntity))";

/// What that means.
const IS_AUTHORITY: &str = "the server shows the certificate of an authority (CA:TRUE) as its own: give it one that this authority \
    has signed, made with CA:FALSE";

/// How the text of an alert of the other side begins.
const ALERT: &str = "received fatal alert";

/// Why a connection was not encrypted.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// The two do not speak the same or do not trust each other, a file cannot be used, or no authority is trusted: the next
    /// time will be no better.
    #[error("{0}")]
    Wrong(String),
    /// The connection broke.
    #[error(transparent)]
    Broken(io::Error),
}

/// An error of a handshake.
pub(crate) fn sort(error: io::Error) -> TlsError {
    match error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>()) {
        Some(rustls::Error::InvalidMessage(_)) => TlsError::Wrong(format!("{error}: {IS_PLAIN}")),
        Some(_) => TlsError::Wrong(in_words(&error.to_string())),
        None if matches!(error.kind(), io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset) => {
            let what = format!("the server closed the connection during the TLS handshake: {IS_PLAIN}");
            TlsError::Broken(io::Error::new(error.kind(), what))
        }
        None => TlsError::Broken(error),
    }
}

/// The text of an error of rustls, where that gives a name only, in words.
#[must_use]
pub fn in_words(text: &str) -> String {
    text.replace(AUTHORITY, IS_AUTHORITY)
}

/// True if this is the text of an error by which the other side refuses ours. A server may refuse our certificate only after
/// the handshake: its alert then comes out of the first read, and a client library may have hidden its type.
#[must_use]
pub fn is_alert(text: &str) -> bool {
    text.starts_with(ALERT)
}

#[cfg(test)]
mod tests {
    use rustls::{AlertDescription, Error};

    use super::*;

    #[test]
    fn an_alert_is_known_by_its_text() {
        assert!(is_alert(&Error::AlertReceived(AlertDescription::CertificateRequired).to_string()));
        assert!(!is_alert(&Error::DecryptError.to_string()));
    }
}
