//! How the previous hold of a name ended, as the letter that the scripts store.

use leasehold_core::Previous;

/// How the hold ended, by the letter that the scripts store; unknown for any other letter.
pub(crate) fn from_letter(letter: &str) -> Previous {
    match letter {
        "c" => Previous::Clean,
        "a" => Previous::Abandoned,
        "l" => Previous::Lapsed,
        "b" => Previous::Broken,
        _ => Previous::Unknown,
    }
}

/// The letter that the scripts store for this end of a hold.
pub(crate) fn letter(previous: Previous) -> &'static str {
    match previous {
        Previous::Clean => "c",
        Previous::Abandoned => "a",
        Previous::Lapsed => "l",
        Previous::Broken => "b",
        _ => "u",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_end_has_a_letter() {
        let all =
            [Previous::Clean, Previous::Abandoned, Previous::Lapsed, Previous::Broken, Previous::Unknown];
        for previous in all {
            assert_eq!(from_letter(letter(previous)), previous);
        }
    }
}
