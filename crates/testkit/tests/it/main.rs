//! The testkit, tested: on the memory engine, and on engines that are bent on purpose.

mod bent;
mod conformance;
mod counting;
mod faulty;
mod rig;
mod slow;
