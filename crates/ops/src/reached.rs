//! How the reader of an advice reaches an engine by a command, without a secret in the advice. Pure.

/// What the options that contain a secret have in their names. Options that end with `_file` name a file.
const SECRET_OPTIONS: [&str; 4] = ["pass", "secret", "token", "credential"];
/// The schemes whose URL is a path, which has no login.
const PATH_SCHEMES: [&str; 2] = ["file", "sqlite"];

/// How the reader of an advice reaches an engine by a command.
///
/// ```
/// use leasehold_ops::Reached;
/// let reached = Reached::of_url("redis://:hunter2@h:6379", "redis");
/// assert_eq!(
///     reached.command("break --token 7 -- a"),
///     "with the password in the URL: leasehold --url redis://h:6379 break --token 7 -- a"
/// );
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Reached {
    /// The command of the reader finds the URL as this process did: in the environment, or in a file of this machine.
    AsHere,
    /// By this URL, which has no secret.
    Url(String),
    /// By this URL, after the reader has added the password.
    UrlWithoutPassword(String),
    /// By the URL with this label. The URL itself is not shown.
    Label(String),
}

impl Reached {
    /// By this URL, without its secrets; by the label if it is not certain which parts of the URL are secret.
    #[must_use]
    pub fn of_url(url: &str, label: &str) -> Self {
        match without_secrets(url) {
            Some((shown, false)) => Self::Url(shown),
            Some((shown, true)) => Self::UrlWithoutPassword(shown),
            None => Self::Label(label.to_owned()),
        }
    }

    /// The line that runs `leasehold` with these arguments, which are words of a shell, and what the reader has to add.
    #[must_use]
    pub fn command(&self, arguments: &str) -> String {
        let (what_to_add, line) = self.parts(arguments);
        format!("{what_to_add}{line}")
    }

    /// The same for the middle of a sentence: the line is between backquotes.
    #[must_use]
    pub fn quoted_command(&self, arguments: &str) -> String {
        let (what_to_add, line) = self.parts(arguments);
        format!("{what_to_add}`{line}`")
    }

    /// What the reader has to add, and the line.
    fn parts(&self, arguments: &str) -> (String, String) {
        match self {
            Self::AsHere => (String::new(), format!("leasehold {arguments}")),
            Self::Url(url) => (String::new(), format!("leasehold --url {} {arguments}", shell_word(url))),
            Self::UrlWithoutPassword(url) => (
                "with the password in the URL: ".to_owned(),
                format!("leasehold --url {} {arguments}", shell_word(url)),
            ),
            Self::Label(label) => (format!("with the URL of {label}: "), format!("leasehold {arguments}")),
        }
    }
}

/// The URL without passwords, and whether it had one. `None`: a password may reach into the options.
fn without_secrets(url: &str) -> Option<(String, bool)> {
    let (place, query) = url.split_once('?').map_or((url, None), |(place, query)| (place, Some(query)));
    if query.is_some_and(|query| query.contains('@')) {
        return None;
    }
    let scheme = place.split(':').next().unwrap_or_default().to_ascii_lowercase();
    let mut shown = place.to_owned();
    let mut had_secret = false;
    if !PATH_SCHEMES.contains(&&*scheme)
        && let Some((login, servers)) = place.rsplit_once('@')
    {
        let (scheme, login) = login.split_once("//")?;
        // A user may be written without a password, which is in a file then.
        let user = login.split_once(':').map(|(user, _)| user);
        had_secret = user.is_some();
        shown = match user.unwrap_or(login) {
            "" => format!("{scheme}//{servers}"),
            user => format!("{scheme}//{user}@{servers}"),
        };
    }
    let mut separator = '?';
    for option in query.into_iter().flat_map(|query| query.split('&')) {
        if is_secret(option.split('=').next().unwrap_or_default()) {
            had_secret = true;
            continue;
        }
        shown.push(separator);
        shown.push_str(option);
        separator = '&';
    }
    Some((shown, had_secret))
}

/// Whether the option with this name may contain a secret.
fn is_secret(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    // An escape may hide the name.
    let may_be = name.contains('%') || SECRET_OPTIONS.iter().any(|part| name.contains(part));
    may_be && !name.ends_with("_file") && name != "passfile"
}

/// A text as one word of a shell.
pub(crate) fn shell_word(text: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "_-./:@%+=,".contains(c);
    if !text.is_empty() && text.chars().all(is_plain) {
        text.to_owned()
    } else {
        format!("'{}'", text.replace('\'', r"'\''"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(url: &str) -> String {
        Reached::of_url(url, "main").command("list")
    }

    #[test]
    fn a_url_without_a_secret_is_given_whole() {
        for url in [
            "redis://h:6379/2",
            "redis+sentinel://me@a:1,b:2/mymaster",
            "file:///srv/a:b@c",
            "sqlite:///srv/x@y.db",
            "etcd://me@h",
        ] {
            assert_eq!(line(url), format!("leasehold --url {url} list"));
        }
        let url = "postgres://me@h/db?password_file=/run/p&passfile=/p&lock_key=hash";
        assert_eq!(line(url), format!("leasehold --url '{url}' list"));
        assert_eq!(Reached::AsHere.command("list"), "leasehold list");
        let quoted = Reached::of_url("redis://:hunter2@h", "main").quoted_command("list");
        assert_eq!(quoted, "with the password in the URL: `leasehold --url redis://h list`");
    }

    #[test]
    fn no_line_shows_a_password() {
        for (url, shown) in [
            ("redis://:hunter2@h:6379", "redis://h:6379"),
            ("redis://me:hunter2@h:6379/1", "redis://me@h:6379/1"),
            ("postgres://me:hunter2/x:y@z@h/db", "postgres://me@h/db"),
            ("postgres://h/db?PassWord=hunter2&user=me", "'postgres://h/db?user=me'"),
            ("postgres://h/db?p%61ssword=hunter2", "postgres://h/db"),
            ("mysql://me:hunter2@h/db?sslpassword=hunter2&prefix=a", "'mysql://me@h/db?prefix=a'"),
        ] {
            let wanted = format!("with the password in the URL: leasehold --url {shown} list");
            assert_eq!(line(url), wanted);
        }
        // The text after the question mark may be the end of the password.
        for url in ["redis://me:hun?ter2@h", "redis:me:hunter2@h", "hunter2@h"] {
            assert_eq!(line(url), "with the URL of main: leasehold list", "{url}");
        }
    }
}
