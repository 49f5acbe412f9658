//! The checker, on histories of known verdicts.

mod changes;
mod generated;
mod rng;
mod brute_force;
mod scenario;
mod verdicts;
mod model;
