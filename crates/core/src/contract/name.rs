//! The name of a lock.

use std::{fmt, sync::Arc};

use crate::Error;

/// The longest name, in bytes: long enough for a path or a URL, short enough for every engine to store unshortened.
pub const MAX_NAME_BYTES: usize = 512;

/// The name of a lock: 1 to 512 bytes of UTF-8 without control characters.
///
/// Names are opaque: no engine interprets `/`, `*`, quotes or braces in them, and two different names are always two
/// different locks.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Name(Arc<str>);

impl Name {
    /// Checks `text` and makes a name from it.
    ///
    /// ```
    /// use leasehold::Name;
    /// assert_eq!(Name::new("order/17")?.as_str(), "order/17");
    /// assert!(Name::new("two\nlines").unwrap_err().is_invalid());
    /// # Ok::<(), leasehold::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`is_invalid`](Error::is_invalid) with the reason, when `text` is empty, longer than 512 bytes or contains a
    /// control character.
    pub fn new(text: &str) -> Result<Self, Error> {
        if text.is_empty() {
            return Err(Error::invalid("the name is empty: give 1 to 512 bytes of text"));
        }
        if text.len() > MAX_NAME_BYTES {
            let len = text.len();
            return Err(Error::invalid(format!(
                "the name has {len} bytes: at most {MAX_NAME_BYTES} are allowed"
            )));
        }
        if let Some((index, control)) = text.char_indices().find(|(_, c)| c.is_control()) {
            let code = u32::from(control);
            return Err(Error::invalid(format!(
                "the name holds the control character U+{code:04X} at byte {index}"
            )));
        }
        Ok(Self(text.into()))
    }

    /// The name as it was given.
    ///
    /// ```
    /// assert_eq!(leasehold::Name::new("order/17")?.as_str(), "order/17");
    /// # Ok::<(), leasehold::Error>(())
    /// ```
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&*self.0, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invalid_names_are_refused_with_the_reason() {
        for (text, reason) in [
            (String::new(), "empty"),
            ("x".repeat(4096), "4096 bytes"),
            ("x".repeat(513), "513 bytes"),
            ("a\nb".into(), "U+000A at byte 1"),
            ("nul\0".into(), "U+0000 at byte 3"),
            ("\u{7f}".into(), "U+007F"),
            ("c1\u{85}".into(), "U+0085"),
        ] {
            let error = Name::new(&text).unwrap_err();
            assert!(error.is_invalid() && error.to_string().contains(reason), "{text:?}: {error}");
        }
    }

    #[test]
    fn odd_but_valid_names_are_unchanged() {
        for text in ["a", "..", "/", "a/b", "../../etc/passwd", "läuft ✓", "a}b{c", &"x".repeat(512)] {
            assert_eq!(Name::new(text).unwrap().as_str(), text);
        }
    }
}
