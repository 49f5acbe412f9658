//! A model of the Redis protocol, and a search through every sequence of events within bounds.
//!
//! ```text
//! cargo test -p leasehold-model            the small runs, in the order of a minute
//! cargo run --release -p leasehold-model   all runs, with a table; ends with 1 if one is not as expected
//! ```
//!
//! A [`Run`] is a set of rules: how many clients compete for one name, how long things take, which faults may happen
//! and how often. The search visits *every* world that is reachable under the rules. Worlds that are fewer steps away
//! come first, so a broken property comes with a short list of the steps to it (a *story*).
//!
//! # What is modelled
//!
//! * **The server**: the lock key with its value and expiry; the record of the holder and of how the last hold ended;
//!   the queue, its entries, and the claims that missed their grant; tombstones; the counter. `server` models
//!   `name.lua`, and `verbs` models the scripts of the verbs. A test compares both with `LockState`, the pure machine
//!   of core.
//! * **Time** in ticks, on the server and in every client. A lease counts from a time before its request was sent. The
//!   client computes the age of a pushed grant from the last known reading of the server's clock (R16).
//! * **Clients**, one claim each. They claim, ask, receive pushed grants (before or after answers that were sent at the
//!   same time), renew, lose a hold, release, stop waiting for a request in flight, and die while they wait, hold or
//!   release. Any step may take any time, so every client may stop for longer than its lease. In a run without slow
//!   steps, time passes only when nothing else can happen, and every waiter must be granted in the end.
//! * **The network**: the requests of a connection are served in order. A connection may break, and the server may
//!   notice that late or never. Requests on a broken connection arrive later, in any order, or never. Answers and
//!   notifications are lost. A client may stop waiting for an answer.
//! * **Another program** with the plain token lock, which acquires the name between holds of leasehold.
//! * **The resource** under the lock. A holder reads, checks its hold, and writes. There are three kinds: without a
//!   fence; with a fence; with a fence to which the holder shows its token before the read (the seal).
//!
//! # What must hold
//!
//! I1 and I2 (from what the clients know), I4, I5, I6, I7, I8, I10, I11 (the numbers are those of `docs/rules.md`), and
//! that the next holder is told of a lapse. Without a fence, the run must find a holder that pauses between its check
//! and its write and overwrites the write of the next holder. With a fence but without the seal, the run must find an
//! update that is lost because it came after the read of the next holder and before the first write of that holder.
//! With a fence and the seal, the run must find nothing. [`MISTAKES`] are protocols with one mistake each: the search
//! must find each of them. A run must also see the events that it is expected to see (an [`Event`]), because a model in
//! which nothing happens proves nothing.
//!
//! # What is not modelled
//!
//! * Shared holds and permits, minimum hold times, breaking by an operator, the time for which leasehold leaves a name
//!   free for other programs (`gap=`), tries (claims that do not wait).
//! * Restarts, fail-over, eviction and steps of the server's clock. They break I1, and `docs/engines/redis.md` says so.
//! * Hand-over inside a process, and the fast paths of the scripts, which must have the same results as the full
//!   scripts.
//!
//! # Where the model is simpler than the scripts
//!
//! * There is one name, and one claim for each client: a second claim of a client would be the same as one more client.
//! * All clocks run at the same rate, and deadlines have no margin, so an error that a margin would hide is found.
//! * The scripts let the keys of a name other than the lock key expire only when these keys have no meaning any more.
//!   In the model the keys never expire before that.
//! * The server of the model tells no client that a foreign lock has ended (tracking). Clients find out by asking.
//! * In a run with slow steps a waiting client may ask at any time. In other runs it asks after the poll interval, or
//!   when the lock expires if that is earlier.
//! * A request on a broken connection arrives within `request_life` after it was sent. This is `REQUEST_LIFE` in
//!   `name.lua`.
//!
//! # What the search found
//!
//! Three faults of the scripts and of core, which are fixed. The protocols with these faults are among the
//! [`MISTAKES`]. Each fault needs a late request, or a release that arrives after the end of the lease. None of them
//! lets two claims hold at the same time.
//!
//! 1. *Freed out of order.* A hold was granted by push, and lapsed. The release of the hold found that its claim had
//!    missed a grant, removed the record of that, and answered "freed", although another claim may have held the name
//!    after the lapse. The release now answers "absent".
//! 2. *The other grant stays.* An ask of a claim is in flight when its connection breaks. The grant of the claim
//!    arrives by push, becomes valid, and lapses on the server. Then the ask arrives late, and the claim is granted a
//!    second time, for a full ttl. The release had the first token, so it left the second grant in place and left no
//!    tombstone: the name stayed blocked without a holder until the second lease ended. The release now ends everything
//!    that its claim has.
//! 3. *Gone is trusted.* A claim is granted, but the answer is lost, and the lease lapses, which leaves a tombstone. A
//!    second request of the claim is in flight when its connection breaks. A third request is answered "gone", and core
//!    made a new claim without releasing this one. The second request arrived after the end of the tombstone, and got
//!    the name or a queue entry, which no client used. Core now also releases a claim that is gone.

mod action;
pub mod block;
mod bug;
mod client;
mod events;
mod judge;
mod leaving;
mod mistakes;
#[cfg(test)]
mod oracle;
mod properties;
pub mod redlock;
mod resource;
mod rules;
mod runs;
mod search;
mod server;
mod small_search;
mod story;
mod verbs;
mod waiting;
mod wire;
mod world;

use self::{
    action::{Action, Protocol},
    bug::Bug,
    rules::{Id, Ticks},
    world::World,
};
pub use self::{
    events::{Event, EventCounts},
    mistakes::MISTAKES,
    rules::Rules,
    runs::{LARGE, Run, SMALL},
    search::SearchResult,
};
