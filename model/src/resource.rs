//! The resource under the lock: a number that holders read, increment and write back; and the fence around it.

use crate::{Sight, Sights, client::Holding, rules::Section, server::Token};

/// The resource.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Resource {
    /// The number.
    value: u8,
    /// How many additions were acknowledged.
    acknowledged: u8,
    /// The largest token that the fence was shown.
    fence: Token,
    /// The largest token that wrote.
    writer: Token,
    /// Whether a write came after a write with a larger token.
    pub(crate) overtaken: bool,
}

/// The progress of a holder.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Progress {
    Begun,
    Sealed,
    Read(u8),
    /// The hold was still valid when it checked. The write that follows may come at any time.
    Checked(u8),
    Over,
}

impl Resource {
    /// Whether the number contains every acknowledged addition.
    pub(crate) fn is_whole(&self) -> bool {
        self.value == self.acknowledged
    }

    /// Does the next step of a holder.
    pub(crate) fn work(&mut self, holding: &mut Holding, section: Section, sights: &Sights) {
        let token = holding.token;
        holding.progress = match holding.progress {
            Progress::Begun if section == Section::Sealed && !self.is_shown(token) => {
                sights.add(Sight::SealRefused);
                Progress::Over
            }
            Progress::Begun if section == Section::Sealed => Progress::Sealed,
            Progress::Begun | Progress::Sealed => Progress::Read(self.value),
            Progress::Read(value) if holding.left > 0 => Progress::Checked(value),
            Progress::Checked(_) if section != Section::Unfenced && !self.is_shown(token) => {
                sights.add(Sight::WriteRefused);
                Progress::Over
            }
            Progress::Checked(value) => {
                self.overtaken |= token < self.writer;
                self.writer = self.writer.max(token);
                self.value = value + 1;
                self.acknowledged += 1;
                Progress::Over
            }
            Progress::Read(_) | Progress::Over => Progress::Over,
        };
    }

    /// Shows the fence a token. `false`: the fence has seen a larger token.
    fn is_shown(&mut self, token: Token) -> bool {
        self.fence = self.fence.max(token);
        self.fence == token
    }
}
