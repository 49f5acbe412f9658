//! The channel binding `tls-server-end-point` (<https://www.rfc-editor.org/rfc/rfc5929#section-4>): it binds a login
//! to the server's certificate, so that a man in the middle cannot relay the login.

use ring::digest::{Algorithm, SHA256, SHA384, SHA512, digest};

use crate::TlsStream;

const RSA: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 1];
const ECDSA: &[u8] = &[0x2a, 0x86, 0x48, 0xce, 0x3d, 4];
const SEQUENCE: u8 = 0x30;
const OBJECT_IDENTIFIER: u8 = 6;

/// The hash of the server's certificate, by the hash algorithm of its signature. `None` where the signature names
/// none.
#[must_use]
pub fn end_point<S>(stream: &TlsStream<S>) -> Option<Vec<u8>> {
    let certificate = stream.get_ref().1.peer_certificates()?.first()?;
    let algorithm = of_signature(certificate)?;
    Some(digest(algorithm, certificate).as_ref().to_vec())
}

fn of_signature(certificate: &[u8]) -> Option<&'static Algorithm> {
    let (whole, _) = part(certificate, SEQUENCE)?;
    let (_, behind) = part(whole, SEQUENCE)?;
    let (signature, _) = part(behind, SEQUENCE)?;
    let (name, _) = part(signature, OBJECT_IDENTIFIER)?;
    match (name.strip_prefix(RSA), name.strip_prefix(ECDSA)) {
        // By the RFC, SHA-256 replaces MD5 and SHA-1.
        (Some([4 | 5 | 11]), _) | (_, Some([1] | [3, 2])) => Some(&SHA256),
        (Some([12]), _) | (_, Some([3, 3])) => Some(&SHA384),
        (Some([13]), _) | (_, Some([3, 4])) => Some(&SHA512),
        _ => None,
    }
}

/// The content of the first DER element, which must be of this kind, and the bytes after the element.
fn part(der: &[u8], kind: u8) -> Option<(&[u8], &[u8])> {
    let (&found, rest) = der.split_first()?;
    let (&length, rest) = rest.split_first().filter(|_| found == kind)?;
    let (length, rest) = match usize::from(length) {
        short @ 0..0x80 => (short, rest),
        long => {
            let (digits, rest) =
                rest.split_at_checked(long - 0x80).filter(|(digits, _)| digits.len() <= 4)?;
            (digits.iter().fold(0, |length, &digit| length << 8 | usize::from(digit)), rest)
        }
    };
    rest.split_at_checked(length)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn certificate(signature: &[u8]) -> Vec<u8> {
        let signed = [&[SEQUENCE, 0x82, 1, 0][..], &[7; 256]].concat();
        let name =
            [&[SEQUENCE, signature.len() as u8 + 2, OBJECT_IDENTIFIER, signature.len() as u8], signature]
                .concat();
        let body = [signed, name].concat();
        [&[SEQUENCE, 0x82], &u16::try_from(body.len()).unwrap().to_be_bytes()[..], &body].concat()
    }

    #[test]
    fn the_hash_matches_the_signature_algorithm() {
        for (prefix, rest, expected) in [
            (RSA, &[5][..], Some(&SHA256)),
            (RSA, &[11], Some(&SHA256)),
            (RSA, &[13], Some(&SHA512)),
            (ECDSA, &[3, 3], Some(&SHA384)),
            (RSA, &[10], None),
        ] {
            assert_eq!(of_signature(&certificate(&[prefix, rest].concat())), expected, "{rest:?}");
        }
    }

    #[test]
    fn an_invalid_certificate_has_no_hash() {
        let whole = certificate(&[RSA, &[11]].concat());
        for length in 0..whole.len() {
            assert_eq!(of_signature(&whole[..length]), None);
        }
        assert_eq!(of_signature(&[SEQUENCE, 0x88, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff]), None);
    }
}
