//! What `leasehold watch` prints: `story` decides which lines, `line` writes them, `utc` writes the time of day.

mod line;
mod story;

pub(crate) use line::Format;
pub(crate) use story::{Story, Told};
