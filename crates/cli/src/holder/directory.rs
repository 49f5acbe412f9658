//! The working directory of a holder process: the root. A process that lives longer than its step must not keep the
//! directory of the step in use. Paths that the URL gives relative to the directory of the step become absolute before.

use std::{fmt::Write, path::Path};

/// The options of URLs that name a file, which some engines read again for each connection.
const FILE_OPTIONS: [&str; 15] = [
    "password_file",
    "sentinel_password_file",
    "passfile",
    "ca",
    "cert",
    "key",
    "sslrootcert",
    "sslcert",
    "sslkey",
    "ssl-ca",
    "ssl_ca",
    "ssl-cert",
    "ssl_cert",
    "ssl-key",
    "ssl_key",
];
/// The value of `sslrootcert` that names no file.
const SYSTEM_ROOTS: &str = "sslrootcert=system";

/// The same URL, with absolute paths. A path of SQLite counts from the working directory, too, until the database is
/// opened, which is before a holder process leaves the directory.
pub(crate) fn with_absolute_paths(url: &str, directory: &Path) -> String {
    let Some((place, query)) = url.split_once('?') else { return url.to_owned() };
    // The text may be the end of a password with a question mark; then the URL is refused, or the text stays as it is.
    let options: Vec<_> = query.split('&').map(|option| absolute(option, directory)).collect();
    format!("{place}?{}", options.join("&"))
}

fn absolute(option: &str, directory: &Path) -> String {
    let (name, value) = option.split_once('=').unwrap_or((option, ""));
    let is_relative = !value.is_empty() && !value.starts_with('/') && !starts_with_escaped_slash(value);
    if !FILE_OPTIONS.contains(&name) || !is_relative || option == SYSTEM_ROOTS {
        return option.to_owned();
    }
    // The text of the value is escaped already, the directory is not.
    format!("{name}={}/{value}", escaped(directory))
}

fn starts_with_escaped_slash(value: &str) -> bool {
    value.get(..3).is_some_and(|escape| escape.eq_ignore_ascii_case("%2f"))
}

/// The path as a part of an option of a URL.
fn escaped(path: &Path) -> String {
    let mut text = String::new();
    for byte in path.as_os_str().as_encoded_bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'/' | b'-' | b'_' | b'.' => {
                text.push(char::from(*byte));
            }
            byte => {
                // Writing to memory cannot fail.
                let _ = write!(text, "%{byte:02X}");
            }
        }
    }
    // The root is no name before the slash that follows.
    text.trim_end_matches('/').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn relative_files_become_absolute_and_all_else_stays() {
        let of = |url| with_absolute_paths(url, Path::new("/a b/é&"));
        assert_eq!(
            of("redis://h?password_file=p%20w&prefix=x&ca=./c"),
            "redis://h?password_file=/a%20b/%C3%A9%26/p%20w&prefix=x&ca=/a%20b/%C3%A9%26/./c"
        );
        for url in [
            "redis://h",
            "file:///x?password_file",
            "redis://h?password_file=/p",
            "redis://h?password_file=%2Fp",
            "postgres://h/d?sslrootcert=system",
            "redis://h?prefix=key",
            "redis://:ca?t=x@h",
        ] {
            assert_eq!(of(url), url);
        }
        assert_eq!(with_absolute_paths("redis://h?ca=c", Path::new("/")), "redis://h?ca=/c");
    }
}
