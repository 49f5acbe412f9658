//! Finds the URL of the engine. The URL may contain a password, so no error shows it.

use std::{
    ffi::OsString,
    fmt,
    fs::{File, OpenOptions},
    io::{self, ErrorKind, Read},
    os::unix::fs::{MetadataExt, OpenOptionsExt},
    path::Path,
    process::Command,
};

use leasehold_ops::Reached;
use nix::{fcntl::OFlag, unistd::geteuid};
use zeroize::Zeroizing;

use crate::{
    exit::{CONFIG, DENIED, Failure},
    text::escaped,
};

/// The variable that contains the URL.
pub(crate) const URL_VARIABLE: &str = "LEASEHOLD_URL";
/// The variable with the path of a file that contains the URL.
pub(crate) const FILE_VARIABLE: &str = "LEASEHOLD_URL_FILE";
/// The variable that is set for CMD when the two variables above are removed from CMD's environment. Without it, a
/// `leasehold` inside CMD would use `file:` without a message.
pub(crate) const WITHHELD_VARIABLE: &str = "LEASEHOLD_NO_URL";
/// The URL file for the whole machine.
pub(crate) const SYSTEM_FILE: &str = "/etc/leasehold/url";
/// The URL that is used if none is configured.
const DEFAULT: &str = "file:";
/// The largest size of a URL file that is read. The limit keeps a wrong file from filling the memory.
const MAX_BYTES: u64 = 64 * 1024;

/// The places where a URL is looked for, in the order of these fields.
pub(crate) struct Sources<'a> {
    /// `--url`
    pub(crate) flag: Option<String>,
    /// `LEASEHOLD_URL`
    pub(crate) variable: Option<OsString>,
    /// `LEASEHOLD_URL_FILE`
    pub(crate) file: Option<OsString>,
    /// Whether an outer run has removed the two variables above from the environment, by [`withhold`].
    pub(crate) withheld: bool,
    /// The URL file for the whole machine. It may be missing.
    pub(crate) system: &'a Path,
    /// `--require-url`
    pub(crate) required: bool,
}

/// Where a URL came from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// `--url`
    Flag,
    /// `LEASEHOLD_URL`
    Variable,
    /// A file, with its name for messages.
    File(String),
    /// No URL was given.
    Default,
}

/// A URL, and where it came from.
#[derive(Clone)]
pub(crate) struct Given {
    pub(crate) url: String,
    pub(crate) origin: Origin,
}

impl Given {
    /// How the reader of an advice reaches the engine. The reader, too, finds a URL in the environment or in a file.
    pub(crate) fn reached(&self, label: &str) -> Reached {
        match self.origin {
            Origin::Flag => Reached::of_url(&self.url, label),
            Origin::Variable | Origin::File(_) | Origin::Default => Reached::AsHere,
        }
    }
}

impl Given {
    /// The URL for a heading, without its secrets; the label if it is not certain which parts of it are secret.
    pub(crate) fn place(&self, label: &str) -> String {
        match Reached::of_url(&self.url, label) {
            Reached::Url(url) | Reached::UrlWithoutPassword(url) => escaped(&url),
            _ => label.to_owned(),
        }
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Flag => f.write_str("--url"),
            Self::Variable => f.write_str(URL_VARIABLE),
            Self::File(source) => f.write_str(source),
            Self::Default => f.write_str("default"),
        }
    }
}

impl Sources<'_> {
    /// The first URL that is found.
    #[cfg(test)]
    pub(crate) fn url(self) -> Result<String, Failure> {
        self.given().map(|given| given.url)
    }

    /// The first URL that is found, and where it was found.
    pub(crate) fn given(self) -> Result<Given, Failure> {
        let (url, origin) = self.find()?;
        let scheme = url.split(':').next().unwrap_or_default();
        if scheme.eq_ignore_ascii_case("memory") {
            return Err(config_failure(
                "the memory engine excludes only tasks of one process: use file: or another engine",
            ));
        }
        Ok(Given { url, origin })
    }

    /// The first URL that is found. Its scheme is not checked.
    fn find(self) -> Result<(String, Origin), Failure> {
        if let Some(url) = self.flag {
            return Ok((checked_url(&url, "--url")?, Origin::Flag));
        }
        if let Some(url) = self.variable {
            let url = url.into_string().map_err(|_| config_failure("LEASEHOLD_URL is not UTF-8"))?;
            return Ok((checked_url(&url, "LEASEHOLD_URL")?, Origin::Variable));
        }
        if let Some(path) = self.file {
            let path = Path::new(&path);
            let source = format!("the file {} (LEASEHOLD_URL_FILE)", path.display());
            let file = open_without_waiting(path).map_err(|error| unreadable_failure(&source, &error))?;
            return Ok((read_url_file(file, &source, PRIVATE)?, Origin::File(source)));
        }
        if self.withheld {
            return Err(config_failure(
                "no URL is given, and the outer `leasehold run` does not pass its own on: \
                 give --url here, or --pass-url to the outer run",
            ));
        }
        match open_without_waiting(self.system) {
            Ok(file) => {
                let source = self.system.display().to_string();
                Ok((read_url_file(file, &source, NOT_WRITABLE)?, Origin::File(source)))
            }
            Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
                self.fall_back()
            }
            Err(error) => Err(unreadable_failure(&self.system.display().to_string(), &error)),
        }
    }

    /// The default URL, unless `--require-url` forbids it.
    fn fall_back(&self) -> Result<(String, Origin), Failure> {
        if self.required {
            let system = self.system.display();
            return Err(config_failure(format!(
                "no URL is given, and --require-url needs one: \
                 give --url, LEASEHOLD_URL, LEASEHOLD_URL_FILE or {system}"
            )));
        }
        Ok((DEFAULT.to_owned(), Origin::Default))
    }
}

/// The URL in this file, which only its owner may be able to read.
#[cfg(feature = "serve")]
pub(crate) fn url_of_file(path: &Path) -> Result<String, Failure> {
    let source = format!("the file {}", path.display());
    let file = open_without_waiting(path).map_err(|error| unreadable_failure(&source, &error))?;
    read_url_file(file, &source, PRIVATE)
}

/// Removes the variables that may contain a password from the environment of a command.
pub(crate) fn withhold(command: &mut Command) {
    if [URL_VARIABLE, FILE_VARIABLE].into_iter().any(|variable| std::env::var_os(variable).is_some()) {
        command.env_remove(URL_VARIABLE).env_remove(FILE_VARIABLE).env(WITHHELD_VARIABLE, "1");
    }
}

/// The permissions that other users must not have on a URL file, with the `chmod` argument that removes them. A user
/// who can write the file decides to which server all other users send their passwords.
const NOT_WRITABLE: (u32, &str) = (0o022, "go-w");
/// The permissions that other users must not have on a user's own URL file, with the `chmod` argument that removes
/// them. Other users must not even read this file: a password in it is as secret as an ssh key.
const PRIVATE: (u32, &str) = (0o077, "600");

/// Opens a file without waiting: if the path is a pipe, an ordinary open would wait for a writer.
fn open_without_waiting(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).custom_flags(OFlag::O_NONBLOCK.bits()).open(path)
}

/// Reads the URL file. Refuses the file if a user other than this user and root could have written it. `source` is its
/// name for messages. `forbidden` are the permissions that the file must not have, and `chmod` is the argument that
/// removes them.
fn read_url_file(file: File, source: &str, (forbidden, chmod): (u32, &str)) -> Result<String, Failure> {
    let stat = file.metadata().map_err(|error| unreadable_failure(source, &error))?;
    if !stat.is_file() {
        return Err(config_failure(format!("{source} is no regular file")));
    }
    let mode = stat.mode() & 0o777;
    if mode & forbidden != 0 {
        return Err(config_failure(format!(
            "{source} is open to others (mode {mode:04o}): chmod {chmod} it"
        )));
    }
    if stat.uid() != 0 && stat.uid() != geteuid().as_raw() {
        return Err(config_failure(format!(
            "{source} belongs to user {}: it must belong to you or to root",
            stat.uid()
        )));
    }
    // The whole buffer is allocated at once: a buffer that grows leaves copies of the secret in memory.
    let mut text = Zeroizing::new(String::with_capacity(MAX_BYTES as usize + 1));
    file.take(MAX_BYTES + 1).read_to_string(&mut text).map_err(|error| unreadable_failure(source, &error))?;
    if text.len() as u64 > MAX_BYTES {
        return Err(config_failure(format!(
            "{source} is longer than {MAX_BYTES} bytes: it must contain one URL"
        )));
    }
    url_of_lines(&text, source)
}

/// The URL, from the only line that is neither empty nor a comment. Fails if there is no such line or more than one.
fn url_of_lines(text: &str, source: &str) -> Result<String, Failure> {
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
    checked_url(&lines.collect::<Vec<_>>().join("\n"), source)
}

/// The URL without surrounding spaces. Fails if it is empty or has control characters.
fn checked_url(url: &str, source: &str) -> Result<String, Failure> {
    let url = url.trim();
    if url.is_empty() {
        // An empty variable is an error and does not count as unset. Otherwise an empty value could make a fleet of
        // machines use locks of which each works on one machine only.
        return Err(config_failure(format!(
            "{source} is empty: write a URL like file: into it, or remove it"
        )));
    }
    if url.contains(char::is_control) {
        return Err(config_failure(format!("{source} contains a control character, or more than one line")));
    }
    Ok(url.to_owned())
}

/// The failure for a URL file that cannot be read.
fn unreadable_failure(source: &str, error: &std::io::Error) -> Failure {
    let code = if error.kind() == ErrorKind::PermissionDenied { DENIED } else { CONFIG };
    Failure::new(code, format!("cannot read the URL of the engine from {source}: {error}"))
}

/// A failure because of a wrong configuration.
fn config_failure(message: impl Into<String>) -> Failure {
    Failure::new(CONFIG, message)
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::PermissionsExt};

    use super::*;

    /// A directory that is removed at the end of the test.
    struct Dir(std::path::PathBuf);

    impl Dir {
        fn new(test: &str) -> Self {
            let path = std::env::temp_dir().join(format!("leasehold-{test}-{}", std::process::id()));
            fs::create_dir(&path).unwrap();
            Self(path)
        }

        fn path(&self) -> &Path {
            &self.0
        }
    }

    impl Drop for Dir {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    fn none(system: &Path) -> Sources<'_> {
        Sources { flag: None, variable: None, file: None, withheld: false, system, required: false }
    }

    fn file(dir: &Path, name: &str, text: &str, mode: u32) -> std::path::PathBuf {
        let path = dir.join(name);
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        path
    }

    fn message(sources: Sources<'_>, code: u8) -> String {
        let failure = sources.url().unwrap_err();
        assert_eq!(failure.code, code);
        failure.message.unwrap()
    }

    #[test]
    fn the_first_source_found_wins() {
        let dir = Dir::new("order");
        let system = file(dir.path(), "system", "file:///system\n", 0o644);
        let named = file(dir.path(), "named", "  file:///named\n", 0o600);
        let all = || Sources {
            flag: Some("file:///flag".into()),
            variable: Some("file:///variable".into()),
            file: Some(named.clone().into()),
            withheld: true,
            system: &system,
            required: true,
        };
        assert_eq!(all().url().unwrap(), "file:///flag");
        assert_eq!(Sources { flag: None, ..all() }.url().unwrap(), "file:///variable");
        assert_eq!(Sources { flag: None, variable: None, ..all() }.url().unwrap(), "file:///named");
        let withheld = Sources { withheld: true, ..none(&system) };
        assert!(message(withheld, CONFIG).contains("--pass-url"));
        assert_eq!(none(&system).url().unwrap(), "file:///system");
        assert_eq!(none(&dir.path().join("missing")).url().unwrap(), "file:");
    }

    #[test]
    fn an_advice_repeats_the_url_of_an_option_alone() {
        let of = |origin| Given { url: "redis://:canary@h".into(), origin }.reached("redis").command("list");
        assert_eq!(of(Origin::Flag), "with the password in the URL: leasehold --url redis://h list");
        for origin in [Origin::Variable, Origin::File("f".into()), Origin::Default] {
            assert_eq!(of(origin), "leasehold list", "the reader has it, too");
        }
        let place = |url: &str| Given { url: url.into(), origin: Origin::Flag }.place("redis");
        assert_eq!(place("redis://me:canary@h:6379/1"), "redis://me@h:6379/1");
        assert_eq!(place("redis://me:ca?nary@h"), "redis");
    }

    #[test]
    fn a_required_url_must_be_given() {
        let missing = Path::new("/nonexistent/url");
        assert!(message(Sources { required: true, ..none(missing) }, CONFIG).contains("--require-url"));
        let given = Sources { flag: Some("file:".into()), required: true, ..none(missing) };
        assert_eq!(given.url().unwrap(), "file:");
    }

    #[test]
    fn a_url_file_must_exist_and_be_private() {
        let dir = Dir::new("private");
        for mode in [0o640, 0o604, 0o660] {
            let open = file(dir.path(), "open", "redis://:canary@h", mode);
            let message =
                message(Sources { file: Some(open.into()), ..none(Path::new("/nonexistent")) }, CONFIG);
            assert!(message.contains("chmod 600") && !message.contains("canary"), "{message}");
        }
        let gone = dir.path().join("gone");
        let message = message(Sources { file: Some(gone.into()), ..none(Path::new("/nonexistent")) }, CONFIG);
        assert!(message.contains("gone"), "{message}");
    }

    #[test]
    fn a_file_writable_by_others_is_refused_and_a_pipe_does_not_block() {
        let dir = Dir::new("writable");
        for mode in [0o664, 0o646, 0o666] {
            let system = file(dir.path(), "system", "redis://h", mode);
            assert!(message(none(&system), CONFIG).contains("chmod go-w"), "{mode:o}");
        }
        let pipe = dir.path().join("pipe");
        nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::S_IRUSR).unwrap();
        for sources in
            [none(&pipe), Sources { file: Some(pipe.clone().into()), ..none(Path::new("/nonexistent")) }]
        {
            assert!(message(sources, CONFIG).contains("no regular file"));
        }
        // Only root can give a file to another user. Root too refuses a file that belongs neither to root nor to the
        // user that it runs as.
        if geteuid().is_root() {
            let theirs = file(dir.path(), "theirs", "redis://h", 0o600);
            nix::unistd::chown(&theirs, Some(12_345.into()), None).unwrap();
            let sources = Sources { file: Some(theirs.into()), ..none(Path::new("/nonexistent")) };
            assert!(message(sources, CONFIG).contains("belongs to user 12345"));
        }
    }

    #[test]
    fn lines_that_begin_with_a_number_sign_are_comments() {
        let dir = Dir::new("comments");
        let text = "# The locks of this machine.\n\n   # see the wiki\nredis://h\n# the end\n";
        assert_eq!(none(&file(dir.path(), "system", text, 0o644)).url().unwrap(), "redis://h");
        let two = file(dir.path(), "two", "redis://h\nredis://i\n", 0o644);
        assert!(message(none(&two), CONFIG).contains("more than one line"));
        assert!(message(none(&file(dir.path(), "only", "# none\n", 0o644)), CONFIG).contains("is empty"));
    }

    #[test]
    fn url_files_are_read_from_random_bytes() {
        let samples =
            ["# ours\n\nredis://me:hunter2@h\n# end", "\r\n\tetcd://a,b\u{85}", "\u{feff}file:", "#\0\n"];
        leasehold_testkit::fuzz::run(&samples.map(|text| text.as_bytes().to_vec()), |bytes| {
            let Ok(text) = std::str::from_utf8(bytes) else { return };
            match url_of_lines(text, "the file") {
                Ok(url) => {
                    assert!(
                        !url.is_empty() && !url.contains(char::is_control) && !url.starts_with('#'),
                        "{url:?}"
                    );
                    assert!(text.lines().any(|line| line.trim() == url), "{url:?} is no line of {text:?}");
                }
                Err(failure) => assert!(!format!("{failure:?}").contains("hunter2"), "{failure:?}"),
            }
        });
    }

    #[test]
    fn a_malformed_url_is_refused_without_showing_it() {
        let missing = Path::new("/nonexistent/url");
        for (flag, word) in [
            ("", "empty"),
            ("  \n", "empty"),
            ("redis://:canary@h\nredis://x", "line"),
            ("memory:", "tasks of one process"),
            ("MEMORY:x", "tasks of one process"),
        ] {
            let message = message(Sources { flag: Some(flag.into()), ..none(missing) }, CONFIG);
            assert!(message.contains(word) && !message.contains("canary"), "{flag:?}: {message}");
        }
        let dir = Dir::new("wrong");
        let long = file(dir.path(), "long", &"x".repeat(70_000), 0o600);
        assert!(message(Sources { file: Some(long.into()), ..none(missing) }, CONFIG).contains("longer"));
        let empty = Sources { variable: Some("".into()), ..none(missing) };
        assert!(message(empty, CONFIG).contains("LEASEHOLD_URL is empty"));
    }
}
