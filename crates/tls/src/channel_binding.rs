//! The channel binding `tls-server-end-point` (<https://www.rfc-editor.org/rfc/rfc5929#section-4>): it binds a login
//! to the server's certificate, so that a man in the middle cannot relay the login.

use ring::digest::{Algorithm, SHA256, SHA384, SHA512, digest};

use crate::{
    TlsStream,
    der::{SEQUENCE, der_element},
};

/// The start of the object identifiers of RSA signatures (1.2.840.113549.1.1), in DER.
const RSA: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 1];
/// The start of the object identifiers of ECDSA signatures (1.2.840.10045.4), in DER.
const ECDSA: &[u8] = &[0x2a, 0x86, 0x48, 0xce, 0x3d, 4];
/// The DER tag of an object identifier.
const OBJECT_IDENTIFIER: u8 = 6;

/// The hash of the server's certificate, with the hash algorithm of the certificate's signature (SHA-256 in place of
/// MD5 and SHA-1). `None` if there is no certificate, or its signature names none of these algorithms, SHA-384 or
/// SHA-512.
#[must_use]
pub fn channel_binding<S>(stream: &TlsStream<S>) -> Option<Vec<u8>> {
    let certificate = stream.get_ref().1.peer_certificates()?.first()?;
    let algorithm = signature_hash(certificate)?;
    Some(digest(algorithm, certificate).as_ref().to_vec())
}

/// The hash algorithm that the signature of a certificate uses. A certificate is a sequence of its body, the signature
/// algorithm (<https://www.rfc-editor.org/rfc/rfc5280#section-4.1>) and the signature.
fn signature_hash(certificate: &[u8]) -> Option<&'static Algorithm> {
    let (certificate_content, _) = der_element(certificate, SEQUENCE)?;
    let (_, after_body) = der_element(certificate_content, SEQUENCE)?;
    let (signature_algorithm, _) = der_element(after_body, SEQUENCE)?;
    let (identifier, _) = der_element(signature_algorithm, OBJECT_IDENTIFIER)?;
    match (identifier.strip_prefix(RSA), identifier.strip_prefix(ECDSA)) {
        // The last bytes of the identifiers: first those of signatures with MD5, SHA-1 or SHA-256 (by RFC 5929, SHA-256
        // takes the place of MD5 and SHA-1), then those with SHA-384, then those with SHA-512.
        (Some([4 | 5 | 11]), _) | (_, Some([1] | [3, 2])) => Some(&SHA256),
        (Some([12]), _) | (_, Some([3, 3])) => Some(&SHA384),
        (Some([13]), _) | (_, Some([3, 4])) => Some(&SHA512),
        _ => None,
    }
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
            assert_eq!(signature_hash(&certificate(&[prefix, rest].concat())), expected, "{rest:?}");
        }
    }

    #[test]
    fn an_invalid_certificate_has_no_hash() {
        let certificate_content = certificate(&[RSA, &[11]].concat());
        for length in 0..certificate_content.len() {
            assert_eq!(signature_hash(&certificate_content[..length]), None);
        }
        assert_eq!(signature_hash(&[SEQUENCE, 0x88, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff]), None);
    }
}
