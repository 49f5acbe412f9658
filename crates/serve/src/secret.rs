//! Tokens of users, and the files that contain them. A token is compared in constant time and shown nowhere.

use std::{
    fs::{File, OpenOptions},
    io::{self, Read},
    os::unix::fs::{MetadataExt, OpenOptionsExt},
    path::Path,
};

use ring::{
    hmac::{self, HMAC_SHA256, Key},
    rand::{SecureRandom, SystemRandom},
};

/// The largest size of a token file.
const MAX_FILE_BYTES: u64 = 64 * 1024;
/// The shortest token. `openssl rand -hex 16` prints 32 characters.
const MIN_TOKEN_CHARS: usize = 24;
/// The variable by which systemd passes the directory of the credentials of a service.
const CREDENTIALS_VARIABLE: &str = "CREDENTIALS_DIRECTORY";
/// A key of this process. It signs what the process gave out itself, and hides secrets in comparisons.
pub(crate) struct ProcessKey(Key);

/// The tokens of a file, each with the name of its user.
#[derive(Default)]
pub(crate) struct Tokens(Vec<(String, hmac::Tag)>);

impl ProcessKey {
    /// A new random key.
    ///
    /// # Errors
    /// The system has no randomness.
    pub(crate) fn new() -> io::Result<Self> {
        Key::generate(HMAC_SHA256, &SystemRandom::new())
            .map(Self)
            .map_err(|_| io::Error::other("the system has no randomness"))
    }

    /// The signature of these parts, in hexadecimal digits. Other parts have another signature, also if their texts
    /// joined are the same.
    pub(crate) fn sign(&self, parts: &[&str]) -> String {
        hex(self.tag(parts).as_ref())
    }

    /// Whether this is the signature of these parts, in constant time.
    pub(crate) fn is_signature(&self, parts: &[&str], signature: &str) -> bool {
        // A comparison of two tags by the same key tells nothing about either.
        self.is_same(&self.tag(&[&self.sign(parts)]), signature)
    }

    fn tag(&self, parts: &[&str]) -> hmac::Tag {
        let mut context = hmac::Context::with_key(&self.0);
        for part in parts {
            context.update(&(part.len() as u64).to_be_bytes());
            context.update(part.as_bytes());
        }
        context.sign()
    }

    /// Whether this secret has this tag. Its time does not depend on where they differ.
    fn is_same(&self, tag: &hmac::Tag, secret: &str) -> bool {
        let mut message = (secret.len() as u64).to_be_bytes().to_vec();
        message.extend(secret.as_bytes());
        hmac::verify(&self.0, &message, tag.as_ref()).is_ok()
    }
}

impl Tokens {
    /// Reads a file of tokens. Each line is `TOKEN`, or the name of a user and its token.
    ///
    /// # Errors
    /// Why the file cannot be used, without its contents.
    pub(crate) fn read(path: &Path, key: &ProcessKey) -> Result<Self, String> {
        let shown = path.display();
        let text = read_private(path).map_err(|why| format!("{shown}: {why}"))?;
        let mut tokens = Vec::new();
        for line in text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#')) {
            let (user, token) = match line.split_once(char::is_whitespace) {
                Some((user, token)) => (user, token.trim()),
                None => ("token", line),
            };
            if token.contains(char::is_whitespace) || token.chars().count() < MIN_TOKEN_CHARS {
                return Err(format!(
                    "{shown}: a token has at least {MIN_TOKEN_CHARS} characters and no space: \
                     make one by `openssl rand -hex 16`"
                ));
            }
            tokens.push((user.to_owned(), key.tag(&[token])));
        }
        if tokens.is_empty() { Err(format!("{shown}: it contains no token")) } else { Ok(Self(tokens)) }
    }

    /// The user of a token. All tokens are compared, so that the time does not tell which one it is.
    pub(crate) fn user(&self, key: &ProcessKey, token: &str) -> Option<&str> {
        let same = |(_, tag): &&(String, hmac::Tag)| key.is_same(tag, token);
        let users = self.0.iter().filter(same).map(|(user, _)| user.as_str());
        users.fold(None, |found, user| found.or(Some(user)))
    }

    pub(crate) const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// Reads a file that only its owner can read.
fn read_private(path: &Path) -> Result<String, String> {
    let file = open_private(path)?;
    let mut text = String::new();
    file.take(MAX_FILE_BYTES).read_to_string(&mut text).map_err(|error| error.to_string())?;
    Ok(text)
}

/// Opens a file that only its owner can read, and that belongs to this user or to root.
///
/// # Errors
/// Why it cannot be used.
pub(crate) fn open_private(path: &Path) -> Result<File, String> {
    open_private_beside(path, std::env::var_os(CREDENTIALS_VARIABLE).as_deref().map(Path::new))
}

/// The same, with the directory of the credentials of this service. systemd lets no other user into it, and the modes
/// of its files show the access list of the service as rights of a group.
fn open_private_beside(path: &Path, credentials: Option<&Path>) -> Result<File, String> {
    let file = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(path);
    let file = file.map_err(|error| error.to_string())?;
    let stat = file.metadata().map_err(|error| error.to_string())?;
    if !stat.is_file() {
        return Err("it is no regular file".to_owned());
    }
    let is_credential = credentials.is_some_and(|folder| path.parent() == Some(folder));
    let forbidden = if is_credential { 0o037 } else { 0o077 };
    if stat.mode() & forbidden != 0 {
        return Err(format!("it is open to others (mode {:04o}): chmod 600 it", stat.mode() & 0o777));
    }
    let own = std::fs::metadata("/proc/self").map_err(|error| error.to_string())?.uid();
    if stat.uid() != 0 && stat.uid() != own {
        return Err(format!("it belongs to user {}: it must belong to you or to root", stat.uid()));
    }
    Ok(file)
}

/// A random text of 256 bits.
///
/// # Errors
/// The system has no randomness.
pub(crate) fn random() -> io::Result<String> {
    let mut bytes = [0; 32];
    SystemRandom::new().fill(&mut bytes).map_err(|_| io::Error::other("the system has no randomness"))?;
    Ok(hex(&bytes))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::PermissionsExt};

    use super::*;

    const TOKEN: &str = "0123456789abcdef01234567";

    fn read(text: &str, mode: u32) -> Result<Tokens, String> {
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(file.path(), text).unwrap();
        fs::set_permissions(file.path(), fs::Permissions::from_mode(mode)).unwrap();
        Tokens::read(file.path(), &ProcessKey::new().unwrap())
    }

    #[test]
    fn each_token_has_its_user() {
        let key = ProcessKey::new().unwrap();
        let file = tempfile::NamedTempFile::new().unwrap();
        let text = format!("# ours\n{TOKEN}\n\nada   {TOKEN}x\nbob\t{TOKEN}y\n");
        fs::write(file.path(), text).unwrap();
        let tokens = Tokens::read(file.path(), &key).unwrap();
        assert_eq!(tokens.user(&key, TOKEN), Some("token"));
        assert_eq!(tokens.user(&key, &format!("{TOKEN}y")), Some("bob"));
        for wrong in ["", "ada", &TOKEN[1..], &format!("{TOKEN}z"), &format!("{TOKEN} ")] {
            assert_eq!(tokens.user(&key, wrong), None, "{wrong:?}");
        }
    }

    #[test]
    fn a_file_that_others_can_read_is_refused() {
        for mode in [0o640, 0o604, 0o660, 0o777] {
            let error = read(TOKEN, mode).err().unwrap();
            assert!(error.contains("chmod 600") && !error.contains(TOKEN), "{error}");
        }
        for mode in [0o600, 0o400] {
            assert!(read(TOKEN, mode).is_ok());
        }
    }

    #[test]
    fn a_credential_of_the_service_may_be_of_its_group() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("view");
        fs::write(&path, TOKEN).unwrap();
        for (mode, is_fine) in [(0o440, true), (0o400, true), (0o460, false), (0o444, false)] {
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            assert_eq!(open_private_beside(&path, Some(folder.path())).is_ok(), is_fine, "{mode:o}");
            assert_eq!(open_private_beside(&path, Some(Path::new("/run"))).is_ok(), mode == 0o400);
        }
    }

    #[test]
    fn short_and_missing_tokens_are_refused() {
        for (text, word) in [("", "no token"), ("# x\n", "no token"), ("canary", "24"), ("ada canary", "24")]
        {
            let error = read(text, 0o600).err().unwrap();
            assert!(error.contains(word) && !error.contains("canary"), "{error}");
        }
        assert!(Tokens::read(Path::new("/nonexistent/t"), &ProcessKey::new().unwrap()).is_err());
    }

    #[test]
    fn a_signature_is_of_its_parts() {
        let (key, other) = (ProcessKey::new().unwrap(), ProcessKey::new().unwrap());
        let signature = key.sign(&["ab", "c"]);
        assert!(key.is_signature(&["ab", "c"], &signature));
        assert!(!key.is_signature(&["a", "bc"], &signature));
        assert!(!key.is_signature(&["ab", "c"], ""));
        assert!(!other.is_signature(&["ab", "c"], &signature));
    }
}
