//! The TLS configuration of a URL: from `Connect::tls`, or from the options of the URL.

use leasehold_core::Error;
#[cfg(any(
    feature = "redis",
    feature = "etcd",
    feature = "zookeeper",
    feature = "postgres",
    feature = "mysql"
))]
use leasehold_tls::Tls;

use crate::{connect::Connect, url::Url};

/// The schemes whose connections are always or sometimes encrypted.
const ENCRYPTED: [&str; 9] = [
    "rediss",
    "rediss+sentinel",
    "rediss+cluster",
    "etcds",
    "zookeepers",
    "postgres",
    "postgresql",
    "mysql",
    "mariadb",
];

/// Refuses `Connect::tls` for a URL whose connections are not encrypted.
pub(crate) fn check_is_encrypted(url: &Url, connect: &Connect) -> Result<(), Error> {
    // True if some connections are encrypted: those to the Sentinels, or those to some nodes.
    let encrypts_some = url.scheme == "redis+sentinel" && url.option_is("sentinel_tls", "on")
        || url.scheme == "redlock" && url.rest.contains("rediss://");
    if connect.tls.is_none() || ENCRYPTED.contains(&url.scheme.as_str()) || encrypts_some {
        return Ok(());
    }
    let shown_schemes: Vec<_> = ENCRYPTED.into_iter().filter(|scheme| !scheme.contains('+')).collect();
    let (scheme, encrypted) = (&url.scheme, shown_schemes.join(" or "));
    Err(Error::misconfigured(format!(
        "Connect::tls is given, but {scheme} URLs are not encrypted: write {encrypted}, or leave it out"
    )))
}

/// The TLS configuration from `Connect::tls`; without it, from the options of the URL.
#[cfg(any(feature = "redis", feature = "etcd", feature = "zookeeper"))]
pub(crate) fn of_url(url: &mut Url, connect: &Connect) -> Result<Tls, Error> {
    of_files([url.take("ca"), url.take("cert"), url.take("key")], connect)
}

/// The TLS configuration from `Connect::tls`; without it, from three files: the authorities, the certificate, and its
/// key.
#[cfg(any(
    feature = "redis",
    feature = "etcd",
    feature = "zookeeper",
    feature = "postgres",
    feature = "mysql"
))]
pub(crate) fn of_files(files: [Option<String>; 3], connect: &Connect) -> Result<Tls, Error> {
    if let Some(given) = &connect.tls {
        if files.iter().any(Option::is_some) {
            return Err(Error::misconfigured(
                "Connect::tls replaces the URL options ca, cert and key: give one or the other",
            ));
        }
        return Ok(given.clone());
    }
    let [roots, certificate, key] = files;
    let mut tls = Tls::system();
    if let Some(roots) = roots {
        tls = tls.roots(roots);
    }
    match (certificate, key) {
        (Some(certificate), Some(key)) => Ok(tls.identity(certificate, key)),
        (None, None) => Ok(tls),
        _ => Err(Error::misconfigured("the URL options cert and key belong together")),
    }
}
