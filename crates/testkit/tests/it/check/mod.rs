//! The checker, on histories of known verdicts.

mod changes;
mod mutants;
mod rng;
mod second_opinion;
mod tale;
mod verdicts;
mod world;
