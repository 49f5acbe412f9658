//! A model of Redlock: locks and tokens on a majority of independent servers.
//!
//! # What is modelled
//!
//! * **The nodes**: the lock with its expiry by the node's own clock; the newest token that was written there; how long
//!   the node has no vote since it started. A node may restart with its data or without, its clock may run faster by a
//!   little, or step.
//! * **The clients**, one claim each. A claim locks the nodes (and may write a guessed token in the same step), then
//!   writes a token on the nodes that it has locked. It holds once a majority has both and the clocks of that majority
//!   agree. It renews, sets a missing lock again, releases, gives up. Every step may take any time.
//! * **The network**: requests to nodes are served in any order, at any later time, or never. Answers are lost.
//!
//! # What must hold
//!
//! I1 and I4 of `docs/rules.md`. Worlds with more faults than Redlock can survive (the clocks of a majority step) must
//! break I1: so what the documentation calls impossible is not impossible only because the model omits it.
//!
//! # Where it is simpler than the engine
//!
//! * Other programs are not modelled: they follow no quarantine and compare no clocks.
//! * Clients compare the clocks of nodes exactly; the engine compares them by intervals that contain them.
//! * Tokens count in the ticks of the clocks, one for each grant.

mod action;
mod client;
mod node;
mod properties;
mod rules;
mod runs;
mod world;

pub use self::runs::{HOLDS, MISTAKES, Run};
pub use crate::small_search::SearchResult;
