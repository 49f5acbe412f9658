//! A model of blocks of tokens on etcd and ZooKeeper: a hold that is handed over inside a process, the queue of keys
//! that it belongs to, and the watch that a process keeps on the key ahead of its own.
//!
//! # What is modelled
//!
//! * **The server**: the keys of the queue, each with the revision at which it was created. It deletes the keys of a
//!   process whose lease ends, and reports a deletion to the processes that watch the key. Each process has one key,
//!   which it uses again.
//! * **Two processes** with tasks that always want the name. A process creates its key and reads the queue in one step;
//!   the answer arrives later. It waits for the key ahead of its own, holds, hands its hold over to the next task while
//!   its lease is fresh and its block lasts, renews, and releases. Any step may take any time.
//! * **The watch**: one for each process, kept on the last key that it waited for. Reports of deletions arrive later
//!   than the deletion, in order.
//! * **Another program**, which has a key in the queue too and knows nothing of blocks, and **another hand**, which
//!   deletes a key under its holder.
//!
//! # What must hold
//!
//! I1 and I4 of `docs/rules.md`, no token twice, at most one block of steps while another program waits, and no process
//! waits in vain: a process whose key is the first one holds, or still has a report to receive. After another hand
//! deleted a key, I1 and the order of tokens cannot hold; that no token is used twice must hold even then.
//!
//! # Where it is simpler than the engines
//!
//! * Waiting processes never ask again after a time, as the engines do: so a lost report shows.
//! * All clocks run at the same rate, and a lease is renewed in one step.
//! * A block ends with its tokens; the limit of 50 ms is tested in core.

mod action;
mod runs;
mod world;

pub use self::runs::{HOLDS, MISTAKES, Run};
pub use crate::small_search::SearchResult;
