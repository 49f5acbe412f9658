//! The checker, on histories of known verdicts.

mod mutants;
mod tale;
mod verdicts;
