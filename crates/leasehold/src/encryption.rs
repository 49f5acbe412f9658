//! Reads from a URL whether connections to a database are encrypted. The URL can have the options of leasehold, of
//! libpq, or of the clients of MySQL.

use leasehold_core::Error;
use leasehold_sql::Encryption;

use crate::{connect::Connect, url::Url};

/// The names of the options of one database. In each list, the name that leasehold itself uses comes first.
pub(crate) struct OptionNames {
    /// The options that name the mode of encryption.
    mode: &'static [&'static str],
    /// The options that name the file of trusted authorities (root certificates).
    roots: &'static [&'static str],
    certificate: &'static [&'static str],
    key: &'static [&'static str],
    /// The mode that `ssl=true` means.
    ssl_true: Mode,
}

#[cfg(feature = "postgres")]
pub(crate) const LIBPQ: OptionNames = OptionNames {
    mode: &["sslmode", "ssl"],
    roots: &["ca", "sslrootcert"],
    certificate: &["cert", "sslcert"],
    key: &["key", "sslkey"],
    ssl_true: Mode::Required,
};

#[cfg(feature = "mysql")]
pub(crate) const MYSQL: OptionNames = OptionNames {
    mode: &["ssl-mode", "ssl_mode", "sslmode", "sslaccept", "ssl"],
    roots: &["ca", "ssl-ca", "ssl_ca"],
    certificate: &["cert", "ssl-cert", "ssl_cert"],
    key: &["key", "ssl-key", "ssl_key"],
    ssl_true: Mode::Full,
};

/// The index of the file of authorities in a list of three files: authorities, certificate, key.
const ROOTS_INDEX: usize = 0;

/// The modes of encryption, from the weakest to the strongest. A stronger mode verifies at least what a weaker mode
/// verifies.
#[derive(Clone, Copy, PartialEq, PartialOrd)]
enum Mode {
    Off,
    /// The connection is encrypted if both sides support that.
    Preferred,
    /// The connection is encrypted, but nothing is verified.
    Required,
    /// Like `Required`; in addition, a trusted authority must have signed the certificate.
    Authority,
    /// Like `Authority`; in addition, the certificate must be for this host.
    Full,
}

/// The encryption that a URL asks for. `None`: the URL has no options for encryption.
pub(crate) fn encryption(
    url: &mut Url,
    connect: &Connect,
    names: &OptionNames,
) -> Result<Option<Encryption>, Error> {
    #[cfg(feature = "tls")]
    let has_config = connect.tls.is_some();
    #[cfg(not(feature = "tls"))]
    let has_config = false;
    let has_own_options = has_config || ["ca", "cert", "key"].iter().any(|key| url.has_option(key));
    let requested = mode_of_options(url, names)?;
    // The files of the authorities, of the certificate, and of its key.
    let mut files = [names.roots, names.certificate, names.key]
        .map(|names| names.iter().filter_map(|name| url.take(name)).last());
    let uses_system_roots =
        names.roots.contains(&"sslrootcert") && files[ROOTS_INDEX].as_deref() == Some("system");
    if uses_system_roots {
        files[ROOTS_INDEX] = None;
    }
    let has_files = files.iter().any(Option::is_some);
    let mode = match requested {
        Some(Mode::Off) if has_own_options => {
            return Err(Error::misconfigured(
                "the URL turns TLS off, by tls=off or sslmode=disable, and has options for it: leave one out",
            ));
        }
        Some(mode) if uses_system_roots && mode < Mode::Full => {
            return Err(Error::misconfigured("the URL option sslrootcert=system needs sslmode=verify-full"));
        }
        Some(mode) => mode,
        None if has_own_options || uses_system_roots => Mode::Full,
        None if has_files => Mode::Preferred,
        None => return Ok(None),
    };
    let mode = if mode == Mode::Required && files[ROOTS_INDEX].is_some() { Mode::Authority } else { mode };
    build_encryption(mode, files, connect).map(Some)
}

/// The encryption for a URL that has no options for encryption: connections are encrypted if both sides support that,
/// as in the databases' own clients.
pub(crate) fn default_encryption(connect: &Connect) -> Result<Encryption, Error> {
    build_encryption(Mode::Preferred, [None, None, None], connect)
}

/// The mode that the options of the URL name; `None` if no option names one.
fn mode_of_options(url: &mut Url, names: &OptionNames) -> Result<Option<Mode>, Error> {
    let own_option = match url.take("tls").as_deref() {
        None => None,
        Some("on") => Some(Mode::Full),
        Some("off") => Some(Mode::Off),
        Some(_) => return Err(Error::misconfigured("the URL option tls is unknown: on and off are known")),
    };
    let client_options: Vec<_> =
        names.mode.iter().filter_map(|name| Some((*name, url.take(name)?))).collect();
    match (own_option, &client_options[..]) {
        (own_option, []) => Ok(own_option),
        (None, [(name, value)]) => mode_of_value(value, names).map(Some).ok_or_else(|| {
            Error::misconfigured(format!(
                "the URL option {name} is unknown: disable, prefer, require, verify-ca and verify-full are known"
            ))
        }),
        _ => Err(Error::misconfigured("the URL has more than one option that turns TLS on or off: leave one")),
    }
}

/// The mode that a value of an option means. libpq writes `verify-full`, MySQL `VERIFY_IDENTITY`, and Prisma `strict`;
/// drivers for Node.js write `no-verify` or an object.
fn mode_of_value(value: &str, names: &OptionNames) -> Option<Mode> {
    Some(match value.to_ascii_lowercase().replace('_', "-").as_str() {
        "disable" | "disabled" => Mode::Off,
        "allow" | "prefer" | "preferred" => Mode::Preferred,
        "require" | "required" | "no-verify" | "accept-invalid-certs" => Mode::Required,
        "verify-ca" => Mode::Authority,
        "verify-full" | "verify-identity" | "strict" | r#"{"rejectunauthorized":true}"# => Mode::Full,
        "true" => names.ssl_true,
        _ => return None,
    })
}

/// Builds the encryption from the mode and the files of the authorities, of the certificate, and of its key.
#[cfg(feature = "tls")]
fn build_encryption(mode: Mode, files: [Option<String>; 3], connect: &Connect) -> Result<Encryption, Error> {
    use leasehold_sql::Verify;
    if mode == Mode::Off {
        return Ok(Encryption::Off);
    }
    let verify = match mode {
        Mode::Full => Verify::Full,
        Mode::Authority => Verify::Authority,
        _ if files[ROOTS_INDEX].is_some() => Verify::Authority,
        _ => Verify::Nothing,
    };
    let tls = crate::tls::of_files(files, connect)?.verify(verify);
    Ok(if mode == Mode::Preferred { Encryption::Preferred(tls) } else { Encryption::Required(tls) })
}

#[cfg(not(feature = "tls"))]
fn build_encryption(mode: Mode, _: [Option<String>; 3], connect: &Connect) -> Result<Encryption, Error> {
    if mode <= Mode::Preferred {
        Ok(Encryption::Off)
    } else {
        crate::open::not_encrypted((), connect).map(|()| Encryption::Off)
    }
}

#[cfg(all(test, feature = "tls", feature = "postgres", feature = "mysql"))]
#[expect(clippy::unwrap_used, reason = "a test fails by it")]
mod tests {
    use super::*;

    /// The mode, the file of authorities, and the certificate with its key, as text.
    fn settings(names: &OptionNames, query: &str) -> String {
        let mut url = Url::parse(&format!("db://h/d?{query}")).unwrap();
        let encryption = encryption(&mut url, &Connect::default(), names).unwrap();
        url.check_all_taken().unwrap();
        let text = match encryption {
            None => return "nothing".to_owned(),
            Some(Encryption::Off) => return "off".to_owned(),
            Some(Encryption::Preferred(tls)) => format!("preferred {tls:?}"),
            Some(Encryption::Required(tls)) => format!("required {tls:?}"),
        };
        ["Tls { roots: ", "identity: ", "verify: ", ", given: false }", "Some(", "\"", ")", "("]
            .iter()
            .fold(text, |text, noise| text.replace(noise, ""))
    }

    #[test]
    fn every_client_option_value_is_understood() {
        for (query, expected) in [
            ("", "nothing"),
            ("tls=on", "required None, None, Full"),
            ("tls=off", "off"),
            ("ca=r", "required r, None, Full"),
            ("sslmode=disable", "off"),
            ("sslmode=allow", "preferred None, None, Nothing"),
            ("sslmode=prefer", "preferred None, None, Nothing"),
            ("sslmode=require", "required None, None, Nothing"),
            ("ssl=true", "required None, None, Nothing"),
            ("sslmode=no-verify", "required None, None, Nothing"),
            ("sslmode=require&sslrootcert=r", "required r, None, Authority"),
            ("sslmode=verify-ca&sslrootcert=r", "required r, None, Authority"),
            ("sslmode=verify-full", "required None, None, Full"),
            ("sslmode=verify-full&sslrootcert=system", "required None, None, Full"),
            ("sslrootcert=system", "required None, None, Full"),
            ("sslrootcert=r", "preferred r, None, Authority"),
            ("sslmode=require&sslcert=c&sslkey=k", "required None, c, k, Nothing"),
            ("sslmode=verify-full&ca=r&cert=c&key=k", "required r, c, k, Full"),
        ] {
            assert_eq!(settings(&LIBPQ, query), expected, "{query}");
        }
        for (query, expected) in [
            ("ssl-mode=DISABLED", "off"),
            ("ssl-mode=PREFERRED", "preferred None, None, Nothing"),
            ("ssl-mode=REQUIRED", "required None, None, Nothing"),
            ("ssl_mode=verify_ca&ssl_ca=r", "required r, None, Authority"),
            ("ssl-mode=VERIFY_IDENTITY&ssl-ca=r", "required r, None, Full"),
            ("sslmode=required", "required None, None, Nothing"),
            ("sslaccept=strict", "required None, None, Full"),
            ("sslaccept=accept_invalid_certs", "required None, None, Nothing"),
            ("ssl={%22rejectUnauthorized%22:true}", "required None, None, Full"),
            ("ssl=true", "required None, None, Full"),
            ("ssl-mode=REQUIRED&ssl-cert=c&ssl-key=k", "required None, c, k, Nothing"),
            ("tls=on", "required None, None, Full"),
        ] {
            assert_eq!(settings(&MYSQL, query), expected, "{query}");
        }
    }
}
