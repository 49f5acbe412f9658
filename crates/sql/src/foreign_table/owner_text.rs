//! The owner texts of our holds: what stands in the owner column of a row of ours.
//!
//! A text is a word for its state, 24 bytes (the claim id and the token) in 32 characters, and the label of the holder
//! if the column has room. The shortest column, that of Symfony, has 44 characters.

use leasehold_core::{Actor, ClaimId};

/// The beginning of every text of ours; a mark of the state follows.
pub(crate) const OURS: &str = "leasehold";
/// The digits of the id and the token: those of base64 for URLs (RFC 4648).
const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
/// The id and the token in bytes.
const BYTES: usize = 24;
/// The number of digits: four for each three bytes.
const DIGIT_COUNT: usize = BYTES / 3 * 4;
/// The length of a text without a label.
pub(crate) const LENGTH: usize = OURS.len() + 1 + DIGIT_COUNT;

/// What a text of ours says of its row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// The claim holds.
    Held,
    /// An operator broke the hold, whose holder has not released it yet.
    Broken,
    /// The hold was released. While the row has time left, this is its minimum hold time.
    Released,
}

impl State {
    const ALL: [(Self, char); 3] = [(Self::Held, '.'), (Self::Broken, '!'), (Self::Released, '~')];

    fn mark(self) -> char {
        Self::ALL.into_iter().find_map(|(state, mark)| (state == self).then_some(mark)).unwrap_or('.')
    }
}

/// The beginnings of all texts of ours, each with its mark, for SQL.
pub(crate) fn beginnings() -> [String; 3] {
    State::ALL.map(|(_, mark)| format!("{OURS}{mark}"))
}

/// A text of ours, taken apart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct OwnerText {
    pub(crate) state: State,
    pub(crate) id: ClaimId,
    /// The token of the grant; zero before it is known.
    pub(crate) token: u64,
    pub(crate) label: String,
}

impl OwnerText {
    /// The text of a claim that is about to be granted.
    pub(crate) fn claiming(id: ClaimId, label: &str) -> Self {
        Self { state: State::Held, id, token: 0, label: label.to_owned() }
    }

    pub(crate) fn in_state(&self, state: State) -> Self {
        Self { state, ..self.clone() }
    }

    pub(crate) fn with_token(&self, token: u64) -> Self {
        Self { token, ..self.clone() }
    }

    /// As the row stores it, in a column of at most `room` characters. Characters beyond ASCII are replaced, because
    /// the column may have a character set without them.
    pub(crate) fn text(&self, room: usize) -> String {
        let mut bytes = [0; BYTES];
        bytes[..16].copy_from_slice(&self.id.0);
        bytes[16..].copy_from_slice(&self.token.to_be_bytes());
        let mut text = format!("{OURS}{}", self.state.mark());
        for group in bytes.chunks(3) {
            let number = group.iter().fold(0_usize, |number, &byte| number << 8 | usize::from(byte));
            text.extend([18, 12, 6, 0].map(|shift| char::from(DIGITS[number >> shift & 63])));
        }
        let room_of_label = room.saturating_sub(LENGTH + 1);
        // Without room for the actor, the text of the owner is stored alone.
        let fits = self.label.chars().count() <= room_of_label;
        let label = if fits { &self.label } else { Actor::split(&self.label).0 };
        let printable = label.chars().map(|c| if c.is_ascii() && !c.is_ascii_control() { c } else { '?' });
        if room_of_label > 0 && !label.is_empty() {
            text.push(' ');
            text.extend(printable.take(room_of_label));
        }
        text
    }

    /// Takes a text apart; `None` if it is not one of ours.
    pub(crate) fn read(text: &str) -> Option<Self> {
        let rest = text.strip_prefix(OURS)?;
        let mark = rest.chars().next()?;
        let (state, _) = State::ALL.into_iter().find(|(_, known)| *known == mark)?;
        let digits = rest.get(1..=DIGIT_COUNT)?;
        let label = rest.get(1 + DIGIT_COUNT..)?;
        let label = if label.is_empty() { label } else { label.strip_prefix(' ')? };
        let mut bytes = Vec::with_capacity(BYTES);
        for group in digits.as_bytes().chunks(4) {
            let value = |digit: &u8| DIGITS.iter().position(|known| known == digit);
            let number = group.iter().try_fold(0, |number, digit| Some(number << 6 | value(digit)?))?;
            bytes.extend([16, 8, 0].map(|shift| (number >> shift & 255) as u8));
        }
        let id = ClaimId(bytes.get(..16)?.try_into().ok()?);
        let token = u64::from_be_bytes(bytes.get(16..)?.try_into().ok()?);
        Some(Self { state, id, token, label: label.to_owned() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_read_as_it_was_written() {
        for (id, token) in [(0, 0), (u128::MAX, u64::MAX), (0x0123_4567_89ab_cdef << 64 | 7, 1 << 40)] {
            for state in [State::Held, State::Broken, State::Released] {
                let owner =
                    OwnerText { state, id: ClaimId(u128::to_be_bytes(id)), token, label: "me@host:7".into() };
                assert_eq!(OwnerText::read(&owner.text(255)), Some(owner.clone()));
                let short = owner.text(44);
                assert!(short.len() <= 44, "the column of Symfony has 44 characters: {short}");
                assert_eq!(OwnerText::read(&short), Some(OwnerText { label: "m".into(), ..owner }));
            }
        }
    }

    #[test]
    fn labels_are_cut_and_made_plain() {
        let owner = OwnerText::claiming(ClaimId([1; 16]), "me@höst:7");
        assert_eq!(OwnerText::read(&owner.text(LENGTH + 5)).unwrap().label, "me@h");
        assert_eq!(OwnerText::read(&owner.text(255)).unwrap().label, "me@h?st:7");
        // The actor is stored whole or not at all.
        let owner = OwnerText::claiming(ClaimId([1; 16]), "me@host actor=0123456789abcdef");
        assert_eq!(OwnerText::read(&owner.text(LENGTH + 1 + owner.label.len())).unwrap().label, owner.label);
        assert_eq!(OwnerText::read(&owner.text(LENGTH + owner.label.len())).unwrap().label, "me@host");
    }

    #[test]
    fn texts_of_other_programs_are_not_ours() {
        let ours = OwnerText::claiming(ClaimId([1; 16]), "").text(255);
        for other in ["", "host-1", "leasehold", "leasehold.", &ours[..LENGTH - 1], &format!("{ours}x")] {
            assert_eq!(OwnerText::read(other), None, "{other}");
        }
        assert_eq!(OwnerText::read(&ours.replace("leasehold.", "leasehold,")), None);
        assert_eq!(OwnerText::read(&ours.replace("AQ", "A%")), None);
    }
}
