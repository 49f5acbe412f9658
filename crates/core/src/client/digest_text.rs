//! The digest of a memo as a word of the records that clients store on servers.

/// The word in the place of a digest, if there is none.
pub const NO_DIGEST: &str = "-";

/// The hexadecimal digits of the digest, or [`NO_DIGEST`].
#[must_use]
pub fn digest_text(digest: Option<&[u8; 32]>) -> String {
    digest.map_or_else(
        || NO_DIGEST.to_owned(),
        |digest| digest.iter().map(|byte| format!("{byte:02x}")).collect(),
    )
}

/// The digest of this word, if it has one; the outer `None` if the word is neither of a digest nor [`NO_DIGEST`].
#[must_use]
pub fn read_digest(text: &str) -> Option<Option<[u8; 32]>> {
    if text == NO_DIGEST {
        return Some(None);
    }
    let is_hex = text.len() == 64 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    let digits = is_hex.then(|| text.as_bytes().chunks_exact(2))?;
    let mut digest = [0; 32];
    for (byte, digits) in digest.iter_mut().zip(digits) {
        *byte = u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()?;
    }
    Some(Some(digest))
}
