//! Parses durations as users write them: `500ms`, `30s`, `5m`, `1h30m`.

use std::time::Duration;

use leasehold_core::Error;

/// Parses a duration: whole numbers with the units `ms`, `s`, `m`, `h`, `d`. The largest unit comes first, and each
/// unit occurs at most once.
///
/// # Errors
/// [`is_invalid`](Error::is_invalid), with a hint. A number without a unit is refused, because nobody can know which
/// unit is meant.
pub fn parse_duration(text: &str) -> Result<Duration, Error> {
    const UNITS: [(&str, u64); 5] =
        [("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1000), ("ms", 1)];
    let invalid = |why: &str| Error::invalid(format!("{text:?} is not a duration: {why}"));
    if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(invalid(&format!("write {text}s")));
    }
    let mut rest = text;
    let mut millis: u64 = 0;
    // The index of the largest unit that may still follow.
    let mut next_unit = 0;
    while !rest.is_empty() {
        let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        let (number, tail) = rest.split_at(digits);
        let letters = tail.bytes().take_while(u8::is_ascii_alphabetic).count();
        let (unit, tail) = tail.split_at(letters);
        let index = UNITS.iter().position(|(word, _)| *word == unit);
        let (Ok(number), Some(index)) = (number.parse::<u64>(), index) else {
            return Err(invalid("write it like 500ms, 30s, 5m or 1h30m"));
        };
        if index < next_unit {
            return Err(invalid("the units go from the largest to the smallest, each once"));
        }
        next_unit = index + 1;
        let part = number.checked_mul(UNITS[index].1).ok_or_else(|| invalid("it is too long"))?;
        millis = millis.checked_add(part).ok_or_else(|| invalid("it is too long"))?;
        rest = tail;
    }
    if text.is_empty() {
        return Err(invalid("it is empty: write it like 30s"));
    }
    Ok(Duration::from_millis(millis))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn usual_durations_are_parsed() {
        for (text, millis) in [
            ("500ms", 500),
            ("30s", 30_000),
            ("5m", 300_000),
            ("1h30m", 5_400_000),
            ("1d", 86_400_000),
            ("0s", 0),
        ] {
            assert_eq!(parse_duration(text).expect(text), Duration::from_millis(millis));
        }
    }

    #[test]
    fn other_text_is_refused_with_a_hint() {
        for (text, hint) in [
            ("10", "write 10s"),
            ("", "empty"),
            ("-5s", "like 500ms"),
            ("5 s", "like 500ms"),
            ("1.5s", "like 500ms"),
            ("5x", "like 500ms"),
            ("s", "like 500ms"),
            ("30m1h", "largest"),
            ("1s1s", "each once"),
            ("99999999999999999999s", "like 500ms"),
            ("18446744073709551615h", "too long"),
        ] {
            let error = parse_duration(text).expect_err(text);
            assert!(error.is_invalid() && error.to_string().contains(hint), "{text}: {error}");
        }
    }
}
