//! Keys of MySQL and MariaDB: names of at most 64 characters of ASCII, one space for the whole server.

use leasehold_core::Error;
use sha2::{Digest, Sha512};

use super::{Key, LockKey, flyway_table, java_hash, own_hash, rails_number, unfit};
use crate::database::Failed;

/// The values of the URL option `lock_key`.
const KNOWN: [(&str, LockKey); 6] = [
    ("name", LockKey::Name),
    ("dotnet", LockKey::Dotnet),
    ("flyway", LockKey::Flyway),
    ("rails", LockKey::Rails),
    ("sqlalchemy-dlock", LockKey::SqlalchemyDlock),
    ("tooz", LockKey::Tooz),
];

/// The most characters of a name for `GET_LOCK` of MySQL. MariaDB takes longer names, but a key has to be good for
/// both.
const MAX_CHARACTERS: usize = 64;
/// The begin of leasehold's own keys.
const OWN_PREFIX: &str = "leasehold:";
/// How many characters of the name are in leasehold's own key, for the eyes of an operator.
const SHOWN_CHARACTERS: usize = 21;
/// How many characters of a hash DistributedLock appends, and its alphabet.
const DOTNET_HASH: usize = 32;
const DOTNET_ALPHABET: &[u8; 32] = b"abcdefghijklmnopqrstuvwxyz234567";

impl LockKey {
    /// The derivation that a URL of MySQL chooses by this value of its option `lock_key`.
    ///
    /// # Errors
    /// `is_misconfigured` if the value is unknown. The error does not show the value.
    pub(crate) fn of_mysql(text: &str) -> Result<Self, Error> {
        Self::parse(text, &KNOWN)
    }

    /// The key of this name on MySQL. The server has one space of keys for all its databases, so leasehold's own keys
    /// depend on the database too: names in different databases are different locks, as with tables.
    ///
    /// # Errors
    /// If the derivation has no key for the name; the message says what names it has.
    pub(crate) fn mysql(self, database: &str, name: &str) -> Result<Key, Failed> {
        match self {
            Self::Own => Ok(own_key(name, own_hash("lock", &[database.as_bytes(), name.as_bytes()]))),
            Self::Name | Self::SqlalchemyDlock | Self::Tooz => verbatim(name.to_owned()),
            Self::Dotnet => verbatim(dotnet(name)),
            Self::Flyway => Ok(Key::Name(format!("Flyway-{}", java_hash(&flyway_table(name, '`')?)))),
            Self::Rails => Ok(Key::Name(rails_number(name).to_string())),
            _ => Err(unfit("MySQL knows locks by names: this lock_key is for PostgreSQL")),
        }
    }
}

impl Key {
    /// Whether this is a name for `GET_LOCK` that leasehold made by its own derivation.
    pub(crate) fn is_own_name(&self) -> bool {
        matches!(self, Self::Name(name) if name.starts_with(OWN_PREFIX))
    }
}

/// leasehold's own key: its prefix, what can be shown of the name, and half of a hash. It has lower case only, because
/// the server ignores the case of keys.
pub(super) fn own_key(name: &str, hash: [u8; 32]) -> Key {
    let plain = |c: char| {
        let c = c.to_ascii_lowercase();
        if c.is_ascii_alphanumeric() || matches!(c, '.' | '-') { c } else { '_' }
    };
    let shown: String = name.chars().take(SHOWN_CHARACTERS).map(plain).collect();
    let digits: String = hash[..16].iter().map(|byte| format!("{byte:02x}")).collect();
    Key::Name(format!("{OWN_PREFIX}{shown}:{digits}"))
}

/// A key that the server takes as it is written.
fn verbatim(name: String) -> Result<Key, Failed> {
    let characters = name.chars().count();
    if characters > MAX_CHARACTERS {
        return Err(unfit(&format!(
            "the name has {characters} characters: GET_LOCK of MySQL takes at most {MAX_CHARACTERS}, so with lock_key a name must not be longer"
        )));
    }
    // MariaDB compares the bytes that a connection sends, and each connection chooses its character set.
    if !name.is_ascii() {
        return Err(unfit(
            "the name has a character that is not ASCII: MariaDB compares keys in the character set of each connection, so with lock_key a name must be ASCII",
        ));
    }
    Ok(Key::Name(name))
}

/// The name in lower case, if it is not longer than a key. Of any other name the begin of it in lower case, and a hash.
fn dotnet(name: &str) -> String {
    let lower = name.to_ascii_lowercase();
    if lower == name && lower.encode_utf16().count() <= MAX_CHARACTERS {
        return lower;
    }
    let start: String = lower.chars().take(MAX_CHARACTERS - DOTNET_HASH).collect();
    start + &dotnet_hash(name)
}

/// The first 160 bits of SHA-512, five at a time, the lowest bit of each byte first.
fn dotnet_hash(name: &str) -> String {
    let hash = Sha512::digest(name.as_bytes());
    let bit = |index: usize| usize::from(hash[index / 8] >> (index % 8) & 1);
    let letter = |start: usize| (0..5).fold(0, |letter, offset| letter | bit(start + offset) << offset);
    (0..DOTNET_HASH).map(|index| char::from(DOTNET_ALPHABET[letter(5 * index)])).collect()
}
