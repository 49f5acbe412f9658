//! Passwords in a file of the user, found and read as libpq does
//! (<https://www.postgresql.org/docs/current/libpq-pgpass.html>).

use std::{
    env, fs,
    io::{self, Read},
    path::{Path, PathBuf},
};

use leasehold_core::Fault;
use tokio_postgres::config::Host;

use super::server::Server;
use crate::database::Failed;

/// The name of the password file in the home directory of the user.
const DEFAULT_FILE: &str = ".pgpass";
/// The maximum size of a password file: bounds the read of a wrong file.
const MAX_FILE: u64 = 1 << 20;

/// The password from the password file for a login on this host. `None` if the URL has a password, if no line of the
/// file fits, or if the URL names no file and the default file cannot be read. Each connection reads the file again, so
/// that the file can be replaced.
pub(crate) fn password(server: &Server, host: &Host, port: u16) -> Result<Option<String>, Failed> {
    if server.driver_config.get_password().is_some() {
        return Ok(None);
    }
    let Some(path) = server.passfile.clone().or_else(default_path) else { return Ok(None) };
    let unusable_file = |what: &str| {
        Failed::new(Fault::Misconfigured, format!("the password file {}: {what}", path.display()))
    };
    let (text, open_to_others) = match read(&path) {
        Ok(read) => read,
        Err(_) if server.passfile.is_none() => return Ok(None),
        Err(error) => return Err(unusable_file(&error.to_string())),
    };
    let user = server.driver_config.get_user().map(str::to_owned).or_else(|| env::var("USER").ok());
    let user = user.unwrap_or_default();
    let database = server.driver_config.get_dbname().unwrap_or(&user);
    let port = port.to_string();
    let host = match host {
        Host::Tcp(name) => vec![name.as_str()],
        #[cfg(unix)]
        Host::Unix(directory) => directory.to_str().into_iter().chain(["localhost"]).collect(),
    };
    let login_fields = [&host[..], &[&port], &[database], &[&user]];
    match text.lines().find_map(|line| password_of_line(line, login_fields)) {
        Some(_) if open_to_others => Err(unusable_file("it is open to others: chmod 600")),
        password => Ok(password),
    }
}

/// The path of the password file where the URL names none.
fn default_path() -> Option<PathBuf> {
    env::home_dir().map(|home| home.join(DEFAULT_FILE))
}

/// The text of the file, and whether other users than its owner may read or change it.
fn read(path: &Path) -> io::Result<(String, bool)> {
    let metadata = fs::metadata(path)?;
    if !metadata.is_file() {
        return Err(io::Error::other("it is not a regular file"));
    }
    let mut text = Vec::new();
    fs::File::open(path)?.take(MAX_FILE).read_to_end(&mut text)?;
    Ok((String::from_utf8_lossy(&text).into_owned(), is_open_to_others(&metadata)))
}

#[cfg(unix)]
fn is_open_to_others(metadata: &fs::Metadata) -> bool {
    use std::os::unix::fs::PermissionsExt;
    metadata.permissions().mode() & 0o077 != 0
}

/// Windows has no such bits. As libpq does, leasehold does not check the file there.
#[cfg(not(unix))]
fn is_open_to_others(_: &fs::Metadata) -> bool {
    false
}

/// The password of a line `host:port:database:user:password`, if each of the other fields is `*` or one of the values
/// that `login_fields` has for this field; otherwise `None`.
fn password_of_line(line: &str, login_fields: [&[&str]; 4]) -> Option<String> {
    if line.starts_with('#') {
        return None;
    }
    let mut rest = line.trim_end_matches('\r');
    for accepted in login_fields {
        let (field, after_colon) = field(rest);
        // An escaped star is a literal star.
        let matches_any = rest.starts_with("*:");
        rest = after_colon.filter(|_| matches_any || accepted.contains(&field.as_str()))?;
    }
    Some(unescaped(rest))
}

/// The first field of a line, and the text after its colon.
fn field(line: &str) -> (String, Option<&str>) {
    let mut escaped = false;
    let end = line.bytes().position(|byte| {
        let ends = byte == b':' && !escaped;
        escaped = byte == b'\\' && !escaped;
        ends
    });
    match end {
        Some(end) => (unescaped(&line[..end]), Some(&line[end + 1..])),
        None => (unescaped(line), None),
    }
}

/// A field of the password file without the backslashes that escape its characters.
fn unescaped(text: &str) -> String {
    let mut characters = text.chars();
    let next_character = || match characters.next()? {
        '\\' => characters.next(),
        other => Some(other),
    };
    std::iter::from_fn(next_character).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_read_as_libpq_reads_it() {
        let login_fields: [&[&str]; 4] = [&["h", "localhost"], &["5432"], &["d:b"], &["me"]];
        for (line, password) in [
            (r"h:5432:d\:b:me:secret", Some("secret")),
            (r"localhost:5432:d\:b:me:secret", Some("secret")),
            (r"*:*:*:*:a:b\:c\\d", Some(r"a:b:c\d")),
            ("*:*:*:me:\r", Some("")),
            (r"\*:*:*:me:secret", None),
            ("g:5432:*:me:secret", None),
            ("h:5433:*:me:secret", None),
            ("h:5432:*:you:secret", None),
            ("# *:*:*:*:secret", None),
            ("#h:*:*:*:secret", None),
            ("*:*:*:*", None),
            ("", None),
        ] {
            assert_eq!(password_of_line(line, login_fields).as_deref(), password, "{line}");
        }
    }
}
