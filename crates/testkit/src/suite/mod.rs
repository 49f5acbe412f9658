//! The conformance suite: what every engine must do.
//!
//! [`engine`] is the one entry point for engines. An engine's `tests/conformance.rs` implements [`Harness`] and calls
//! it. The engine's [`Profile`](leasehold_core::Profile) selects the cases; the others are printed as skipped, with the
//! reason. Each case uses names of its own and independent clients, and must leave nothing behind.

mod case;
mod fixture;
mod handles;
mod harness;
mod report;
mod run;

mod breaking;
mod cancel;
mod claim;
mod conversion;
mod elections;
mod expiry;
mod faults;
mod inspect;
mod latch;
mod memo_client;
mod memos;
mod min_hold;
mod modes;
mod names;
mod notifications;
mod once;
mod program;
mod queue;
mod release;
mod renew;
mod schedule;
mod sets;
mod tokens;

pub use harness::{Disturbance, Harness, Stored, max_waiters_or, wait_for_no_leftovers};
pub use report::Report;
pub use run::{engine, run_engine};

use case::Case;

/// Every case, by family.
const FAMILIES: &[&[Case]] = &[
    claim::CASES,
    release::CASES,
    modes::CASES,
    queue::CASES,
    notifications::CASES,
    tokens::CASES,
    renew::CASES,
    expiry::CASES,
    min_hold::CASES,
    breaking::CASES,
    names::CASES,
    inspect::CASES,
    sets::CASES,
    conversion::CASES,
    handles::CASES,
    memos::CASES,
    elections::CASES,
    once::CASES,
    schedule::CASES,
    latch::CASES,
    cancel::CASES,
    faults::CASES,
];
