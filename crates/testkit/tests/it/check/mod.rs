//! Tests the checker on histories with known verdicts.

mod brute_force;
mod changes;
mod generated;
mod model;
mod rng;
mod scenario;
mod verdicts;
