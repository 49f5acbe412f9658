//! The resource under the lock, a number that holders read, increment and write back; and the fence of the resource.

use crate::{Event, EventCounts, client::Holding, rules::Section, server::Token};

/// The resource.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Resource {
    /// The number.
    value: u8,
    /// How many additions were acknowledged.
    acknowledged: u8,
    /// The largest token that was shown to the fence.
    fence_token: Token,
    /// The largest token under which a write was accepted.
    largest_written_token: Token,
    /// Whether a write was accepted after a write with a larger token.
    pub(crate) write_overtaken: bool,
}

/// The progress of a holder in its work on the resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Progress {
    /// The holder has done nothing yet.
    Begun,
    /// The holder has shown its token to the fence.
    Sealed,
    /// The holder has read this number.
    Read(u8),
    /// The holder has read this number, and then a check found the hold valid. The write follows at any later time.
    Checked(u8),
    /// The holder has written, or it will not write.
    Over,
}

impl Resource {
    /// Whether the number contains every acknowledged addition.
    pub(crate) fn has_all_additions(&self) -> bool {
        self.value == self.acknowledged
    }

    /// Does the next step of a holder.
    pub(crate) fn work(&mut self, holding: &mut Holding, section: Section, events: &EventCounts) {
        let token = holding.token;
        holding.progress = match holding.progress {
            Progress::Begun if section == Section::Sealed && !self.show_token(token) => {
                events.add(Event::SealRefused);
                Progress::Over
            }
            Progress::Begun if section == Section::Sealed => Progress::Sealed,
            Progress::Begun | Progress::Sealed => Progress::Read(self.value),
            Progress::Read(value) if holding.valid_for > 0 => Progress::Checked(value),
            Progress::Checked(_) if section != Section::Unfenced && !self.show_token(token) => {
                events.add(Event::WriteRefused);
                Progress::Over
            }
            Progress::Checked(value) => {
                self.write_overtaken |= token < self.largest_written_token;
                self.largest_written_token = self.largest_written_token.max(token);
                self.value = value + 1;
                self.acknowledged += 1;
                Progress::Over
            }
            Progress::Read(_) | Progress::Over => Progress::Over,
        };
    }

    /// Shows a token to the fence. Returns false if the fence has seen a larger token.
    fn show_token(&mut self, token: Token) -> bool {
        self.fence_token = self.fence_token.max(token);
        self.fence_token == token
    }
}
