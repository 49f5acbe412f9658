//! What the lock protects: a number that holders read, add one to and write back; and the fence around it.

use crate::{Sight, Sights, client::Holding, rules::Section, server::Token};

/// The resource.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Resource {
    value: u8,
    /// How many additions were acknowledged.
    acknowledged: u8,
    /// The largest token it was shown.
    fence: Token,
    /// The largest token that wrote.
    writer: Token,
    /// A write followed one with a larger token.
    pub(crate) overtaken: bool,
}

/// How far a holder is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Progress {
    Begun,
    Sealed,
    Read(u8),
    /// It still held when it looked. What it writes now may come at any time.
    Checked(u8),
    Over,
}

impl Resource {
    /// Whether it has every addition that it acknowledged.
    pub(crate) fn is_whole(&self) -> bool {
        self.value == self.acknowledged
    }

    /// The next thing that a holder does.
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

    /// The fence is shown a token: false if it knows a larger one.
    fn is_shown(&mut self, token: Token) -> bool {
        self.fence = self.fence.max(token);
        self.fence == token
    }
}
