//! What `leasehold doctor` looks at: `examine` asks the engine, `scratch` locks a name of its own, `times` judges how
//! long that took, `waits` looks for deadlocks, `causes` leaves out what only follows from another finding, `verdict`
//! makes one answer of all, and `text` shows it.

mod causes;
mod examine;
mod scratch;
mod text;
mod times;
mod verdict;
mod waits;

use leasehold::{Diagnostic, Guarantee};

pub(crate) use self::{
    examine::{Options, examine, unopened},
    text::lines,
    times::Times,
    waits::Waits,
};

/// All that was found about the engine of one URL.
pub(crate) struct Examination {
    pub(crate) engine: &'static str,
    /// Whether the engine answered a request that needs no right.
    pub(crate) is_reached: bool,
    /// The guarantee, if it could be read.
    pub(crate) guarantee: Option<Guarantee>,
    /// One for each thing that was looked at, in the order of the looks.
    pub(crate) findings: Vec<Diagnostic>,
    /// How long the lock cycles took; `None` if there was none.
    pub(crate) times: Option<Times>,
}
