//! A model of Redlock: locks and tokens on a majority of independent servers.
//!
//! # What is modelled
//!
//! * **The nodes**: the lock with its expiry by the node's own clock; the newest token that was written to the node;
//!   for how long the node still has no vote after its start. A node may restart with its data or without. Its clock
//!   may run faster by a little, or step.
//! * **The clients**, one claim each. A claim sets the lock on the nodes (and may write a guessed token in the same
//!   step). Then it writes a token to the nodes on which it has the lock. It holds as soon as a majority of nodes has
//!   both, and the clocks of that majority agree. A client renews, sets a missing lock again, releases, or gives up.
//!   Every step may take any time.
//! * **The network**: requests to nodes are served in any order, at any later time, or never. Answers may be lost.
//!
//! # What must hold
//!
//! I1 and I4 of `docs/rules.md`. Some runs have more faults than Redlock can survive (the clocks of a majority step).
//! These runs must break I1. That shows that the model has the faults that the documentation calls too many.
//!
//! # Where the model is simpler than the engine
//!
//! * Other programs are not modelled. They have no quarantine and compare no clocks.
//! * Clients know the exact differences between the clocks of nodes. The engine knows intervals that contain these.
//! * Tokens have the unit of the clocks: one token for each tick and grant.

mod action;
mod client;
mod node;
mod properties;
mod rules;
mod runs;
mod world;

pub use self::runs::{HOLDS, MISTAKES, Run};
pub use crate::small_search::SearchResult;
