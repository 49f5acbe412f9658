//! A model of blocks of tokens on etcd and ZooKeeper: a hold that is handed over inside a process, the queue of keys
//! that it belongs to, and the watch that a process keeps on the key ahead of its own.
//!
//! # What is modelled
//!
//! * **The server**: the keys of the queue, each with the revision at which it was created. The server deletes the key
//!   of a process whose lease ends, and reports a deletion to the processes that watch the key. Each process has one
//!   key, which it uses again for its next claim.
//! * **Two processes** with tasks that always want the name. A process creates its key and reads the queue in one step;
//!   the answer arrives later. The process waits for the key ahead of its own, holds, hands its hold over to the next
//!   task as long as its lease and its block last, renews, and releases. Any step may take any time.
//! * **The watch**: one for each process, kept on the last key that the process waited for. Reports of deletions arrive
//!   later than the deletions, in the same order.
//! * **Another program**, which has a key in the queue too and knows nothing of blocks, and **another hand** (for
//!   instance an operator), which deletes the key of a process.
//!
//! # What must hold
//!
//! I1 and I4 of `docs/rules.md` must hold. No token is used twice. While another program waits, a process uses at most
//! one block of steps. No process waits in vain: a waiting process whose key is the first one still has a report to
//! receive. After another hand deleted a key, I1 and the order of tokens cannot hold; that no token is used twice must
//! hold even then.
//!
//! # Where the model is simpler than the engines
//!
//! * In the engines, a waiting process asks again after a time. In the model it never does, so that a lost report
//!   shows.
//! * All clocks run at the same rate, and a lease is renewed in one step.
//! * A process of the model hands its hold over until the tokens of the block are used up. Core also stops handing over
//!   50 ms after the grant; the tests of core check that limit.

mod action;
mod runs;
mod world;

pub use self::runs::{HOLDS, MISTAKES, Run};
pub use crate::small_search::SearchResult;
