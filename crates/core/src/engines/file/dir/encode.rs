//! Encodes names as file names: injective, readable for plain names, safe in a directory. Pure.

use std::fmt::Write as _;

use sha2::{Digest, Sha256};

use crate::Name;

/// The suffix of every lock file, so that no other file in the directory counts as one.
const LOCK_SUFFIX: &str = ".lock";
/// The prefix of the file name of a hashed name. No encoded name begins with it: there, two hex digits follow every
/// `%`, and `h` is no hex digit.
const HASHED_PREFIX: &str = "%h";
/// The longest file name that Linux file systems support.
const MAX_FILE_NAME: usize = 255;

/// The result of decoding the name of a file in the lock directory.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Decoded {
    /// A name.
    Name(Name),
    /// A name too long to encode; its state file contains it.
    Hashed,
}

/// The file name of `name`. Every byte outside `A-Za-z0-9._-`, and a leading dot, becomes `%XX`; `.lock` follows. If
/// the result would be longer than 255 bytes, it is `%h`, the SHA-256 of the name and `.lock` instead.
pub(crate) fn file_name(name: &Name) -> String {
    let bytes = name.as_str().as_bytes();
    let mut encoded = String::with_capacity(bytes.len() + LOCK_SUFFIX.len());
    for (index, &byte) in bytes.iter().enumerate() {
        if is_plain(byte) && !(index == 0 && byte == b'.') {
            encoded.push(char::from(byte));
        } else {
            push_hex(&mut encoded, "%", byte);
        }
    }
    if encoded.len() + LOCK_SUFFIX.len() > MAX_FILE_NAME {
        encoded.clear();
        encoded.push_str(HASHED_PREFIX);
        for byte in Sha256::digest(bytes) {
            push_hex(&mut encoded, "", byte);
        }
    }
    encoded.push_str(LOCK_SUFFIX);
    encoded
}

/// The inverse of [`file_name`]; `None` for a file name that belongs to no name.
pub(crate) fn decode(file_name: &str) -> Option<Decoded> {
    let stem = file_name.strip_suffix(LOCK_SUFFIX)?;
    if let Some(hex) = stem.strip_prefix(HASHED_PREFIX) {
        return (hex.len() == 64 && hex.bytes().all(is_upper_hex)).then_some(Decoded::Hashed);
    }
    let mut bytes = Vec::with_capacity(stem.len());
    let mut rest = stem.as_bytes();
    while let [first, tail @ ..] = rest {
        rest = tail;
        if *first != b'%' {
            bytes.push(*first);
            continue;
        }
        let [high, low, tail @ ..] = rest else { return None };
        bytes.push(hex_value(*high)? << 4 | hex_value(*low)?);
        rest = tail;
    }
    let name = Name::new(&String::from_utf8(bytes).ok()?).ok()?;
    // Only the one spelling that `file_name` produces: `%61.lock` is not the file of `a`.
    (self::file_name(&name) == file_name).then_some(Decoded::Name(name))
}

const fn is_plain(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-')
}

const fn is_upper_hex(byte: u8) -> bool {
    matches!(byte, b'0'..=b'9' | b'A'..=b'F')
}

const fn hex_value(byte: u8) -> Option<u8> {
    match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'A'..=b'F' => Some(byte - b'A' + 10),
        _ => None,
    }
}

fn push_hex(text: &mut String, prefix: &str, byte: u8) {
    write!(text, "{prefix}{byte:02X}").expect("writing to a String cannot fail");
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn name(text: &str) -> Name {
        Name::new(text).unwrap()
    }

    #[test]
    fn plain_names_stay_readable_and_odd_ones_are_escaped() {
        for (text, file) in [
            ("backup", "backup.lock"),
            ("a/b", "a%2Fb.lock"),
            ("..", "%2E..lock"),
            (".bells", "%2Ebells.lock"),
            ("%h", "%25h.lock"),
            ("ä", "%C3%A4.lock"),
            ("A b", "A%20b.lock"),
        ] {
            assert_eq!(file_name(&name(text)), file);
            assert_eq!(decode(file), Some(Decoded::Name(name(text))));
        }
    }

    #[test]
    fn long_names_are_hashed_and_never_meet_an_encoded_one() {
        let long = "x".repeat(251);
        let file = file_name(&name(&long));
        assert_eq!(file.len(), 2 + 64 + 5, "`%h`, the digits of the hash, `.lock`");
        assert_eq!(decode(&file), Some(Decoded::Hashed));
        let stem = file.strip_suffix(".lock").unwrap();
        assert_ne!(file_name(&name(stem)), file, "a name spelled like a hash has another file");
        assert_eq!(file_name(&name(&"x".repeat(250))).len(), 255);
    }

    #[test]
    fn other_files_are_not_names() {
        for file in
            ["x", "x.LOCK", "%61.lock", "%2e.lock", "%2.lock", ".lock", "%00.lock", "%FF.lock", "%hAB.lock"]
        {
            assert_eq!(decode(file), None, "{file}");
        }
    }

    proptest! {
        #[test]
        fn encoding_is_injective_and_safe(text in "\\PC{1,90}", first in "[a-c%h./]{1,6}", second in "[a-c%h./]{1,6}") {
            let file = file_name(&name(&text));
            prop_assert!(file.len() <= 255 && !file.starts_with('.') && !file.contains('/') && !file.contains('\0'));
            prop_assert!(file.is_ascii());
            match decode(&file) {
                Some(Decoded::Name(decoded)) => prop_assert_eq!(decoded.as_str(), text.as_str()),
                // Only a name that can be too long is hashed: `%XX` for each byte, and `.lock`.
                Some(Decoded::Hashed) => prop_assert!(text.len() * 3 + 5 > 255),
                None => prop_assert!(false, "{} does not decode", file),
            }
            prop_assert_eq!(first == second, file_name(&name(&first)) == file_name(&name(&second)));
        }
    }
}
