//! When the certificate of a server expires.

use std::time::Duration;

use crate::{
    TlsStream,
    der::{SEQUENCE, der_element},
};

/// The DER tag of the version of a certificate, which only certificates of version 1 lack.
const VERSION: u8 = 0xa0;
/// The DER tag of an integer.
const INTEGER: u8 = 2;
/// The DER tag of a time with a year of two digits.
const UTC_TIME: u8 = 0x17;
/// The DER tag of a time with a year of four digits.
const GENERALIZED_TIME: u8 = 0x18;

/// The moment after which the certificate of the server is no longer valid, since 1970. `None` if there is no
/// certificate, or its time cannot be read.
#[must_use]
pub fn certificate_end<S>(stream: &TlsStream<S>) -> Option<Duration> {
    end_of(stream.get_ref().1.peer_certificates()?.first()?)
}

/// The months in the texts of OpenSSL.
const MONTHS: [&str; 12] =
    ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];

/// The same moment, from a text of OpenSSL (`ASN1_TIME_print`), by which some servers tell the end of their own
/// certificate: `Feb  9 13:01:05 2030 GMT`. `None` if the text has another form.
#[must_use]
pub fn certificate_end_from_text(text: &str) -> Option<Duration> {
    let mut words = text.split_ascii_whitespace();
    let month = words.next()?;
    let month = MONTHS.iter().position(|known| *known == month)? + 1;
    let day = words.next()?.parse().ok()?;
    let clock: Vec<u64> = words.next()?.split(':').map(|part| part.parse().ok()).collect::<Option<_>>()?;
    let &[hours, minutes, seconds] = &clock[..] else { return None };
    let year = words.next()?.parse().ok().filter(|year| *year <= LAST_YEAR)?;
    if (words.next(), words.next()) != (Some("GMT"), None) || hours > 23 || minutes > 59 || seconds > 60 {
        return None;
    }
    let days = days_since_1970(year, u64::try_from(month).ok()?, day)?;
    Some(Duration::from_secs(((days * 24 + hours) * 60 + minutes) * 60 + seconds))
}

/// The last year that a certificate can have.
const LAST_YEAR: u64 = 9999;

/// The end of the validity of a certificate (<https://www.rfc-editor.org/rfc/rfc5280#section-4.1>).
fn end_of(certificate: &[u8]) -> Option<Duration> {
    let (certificate_content, _) = der_element(certificate, SEQUENCE)?;
    let (body, _) = der_element(certificate_content, SEQUENCE)?;
    let body = der_element(body, VERSION).map_or(body, |(_, rest)| rest);
    let (_serial, rest) = der_element(body, INTEGER)?;
    let (_algorithm, rest) = der_element(rest, SEQUENCE)?;
    let (_issuer, rest) = der_element(rest, SEQUENCE)?;
    let (validity, _) = der_element(rest, SEQUENCE)?;
    let (_begin, rest) = time(validity)?;
    let (end, _) = time(rest)?;
    Some(end)
}

/// The first time, and the bytes after it. RFC 5280 allows only times to the second, in UTC.
fn time(der: &[u8]) -> Option<(Duration, &[u8])> {
    let (text, year_digits, rest) = match der_element(der, UTC_TIME) {
        Some((text, rest)) => (text, 2, rest),
        None => der_element(der, GENERALIZED_TIME).map(|(text, rest)| (text, 4, rest))?,
    };
    let text = std::str::from_utf8(text).ok()?.strip_suffix('Z')?;
    if text.len() != year_digits + 10 || !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let number = |from: usize, digits: usize| text[from..from + digits].parse::<u64>().ok();
    let year = match (number(0, year_digits)?, year_digits) {
        (year, 4) => year,
        // By RFC 5280, the years from 50 on are of the 20th century.
        (year @ 50.., _) => 1900 + year,
        (year, _) => 2000 + year,
    };
    let field = |index: usize| number(year_digits + 2 * index, 2);
    let (month, day) = (field(0)?, field(1)?);
    let days = days_since_1970(year, month, day)?;
    let seconds = ((days * 24 + field(2)?) * 60 + field(3)?) * 60 + field(4)?;
    Some((Duration::from_secs(seconds), rest))
}

/// The number of days from the first of January 1970 to this day; `None` for an earlier day, or for no day.
fn days_since_1970(year: u64, month: u64, day: u64) -> Option<u64> {
    /// The days before each month, in a year that is no leap year.
    const BEFORE_MONTH: [u64; 12] = [0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334];
    let before_month = BEFORE_MONTH.get(usize::try_from(month.checked_sub(1)?).ok()?)?;
    let leap_days = |year: u64| year / 4 - year / 100 + year / 400;
    // The leap day of this year counts from March on.
    let last_leap_year = if month > 2 { year } else { year.checked_sub(1)? };
    let before_year = year.checked_sub(1970)? * 365;
    (1..=31).contains(&day).then_some(())?;
    Some(before_year + leap_days(last_leap_year) - leap_days(1969) + before_month + day - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn element(tag: u8, content: &[u8]) -> Vec<u8> {
        [&[tag, u8::try_from(content.len()).unwrap()], content].concat()
    }

    /// A certificate with only the parts up to its validity.
    fn certificate(version: &[u8], end: &[u8]) -> Vec<u8> {
        let validity = [element(UTC_TIME, b"200101000000Z"), end.to_vec()].concat();
        let body = [
            version.to_vec(),
            element(INTEGER, &[9]),
            element(SEQUENCE, &[]),
            element(SEQUENCE, &[]),
            element(SEQUENCE, &validity),
        ]
        .concat();
        element(SEQUENCE, &element(SEQUENCE, &body))
    }

    /// The expected seconds are those of `date -u -d ... +%s`.
    #[test]
    fn the_end_is_read_in_both_forms() {
        let version = element(VERSION, &element(INTEGER, &[2]));
        for (tag, text, seconds) in [
            (UTC_TIME, "700101000000Z", 0),
            (UTC_TIME, "240229235959Z", 1_709_251_199),
            (UTC_TIME, "240301000000Z", 1_709_251_200),
            (UTC_TIME, "261126191052Z", 1_795_720_252),
            (GENERALIZED_TIME, "20991231235959Z", 4_102_444_799),
            (GENERALIZED_TIME, "21000301000000Z", 4_107_542_400),
        ] {
            for version in [&version[..], &[]] {
                let certificate = certificate(version, &element(tag, text.as_bytes()));
                assert_eq!(end_of(&certificate), Some(Duration::from_secs(seconds)), "{text}");
                for length in 0..certificate.len() {
                    assert_eq!(end_of(&certificate[..length]), None);
                }
            }
        }
    }

    /// The expected seconds are those of `date -u -d ... +%s`.
    #[test]
    fn the_end_is_read_from_a_text_of_openssl() {
        for (text, seconds) in [
            ("Jan  1 00:00:00 1970 GMT", Some(0)),
            ("Feb 29 23:59:59 2024 GMT", Some(1_709_251_199)),
            ("Nov 26 19:10:52 2026 GMT", Some(1_795_720_252)),
            ("Dec 31 23:59:59 9999 GMT", Some(253_402_300_799)),
            ("", None),
            ("Nov 26 19:10:52 2026", None),
            ("Nov 26 19:10:52 2026 CET", None),
            ("Nov 26 19:10:52 2026 GMT x", None),
            ("nov 26 19:10:52 2026 GMT", None),
            ("Nov 32 19:10:52 2026 GMT", None),
            ("Nov 26 24:10:52 2026 GMT", None),
            ("Nov 26 19:10 2026 GMT", None),
            ("Nov 26 19:10:52 1969 GMT", None),
            ("Nov 26 19:10:52 18446744073709551615 GMT", None),
        ] {
            assert_eq!(certificate_end_from_text(text), seconds.map(Duration::from_secs), "{text}");
        }
    }

    #[test]
    fn a_text_that_is_no_time_is_no_end() {
        for text in
            ["", "Z", "2401010000Z", "240101000000", "241301000000Z", "240100000000Z", "24+101000000Z"]
        {
            assert_eq!(end_of(&certificate(&[], &element(UTC_TIME, text.as_bytes()))), None, "{text}");
        }
    }
}
