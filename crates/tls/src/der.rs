//! Reads DER, the encoding of certificates.

/// The DER tag of a sequence.
pub(crate) const SEQUENCE: u8 = 0x30;

/// In DER, a first length byte of this value or more tells how many further bytes contain the length.
const LONG_LENGTH: usize = 0x80;
/// The maximum number of further bytes that contain a length: no certificate needs more.
const MAX_LENGTH_BYTES: usize = 4;

/// The content of the first DER element, which must have this tag, and the bytes after the element.
pub(crate) fn der_element(der: &[u8], tag: u8) -> Option<(&[u8], &[u8])> {
    let (&actual_tag, rest) = der.split_first()?;
    let (&length, rest) = rest.split_first().filter(|_| actual_tag == tag)?;
    let (length, rest) = match usize::from(length) {
        short @ 0..LONG_LENGTH => (short, rest),
        long => {
            let (digits, rest) = rest
                .split_at_checked(long - LONG_LENGTH)
                .filter(|(digits, _)| digits.len() <= MAX_LENGTH_BYTES)?;
            (digits.iter().fold(0, |length, &digit| length << 8 | usize::from(digit)), rest)
        }
    };
    rest.split_at_checked(length)
}
