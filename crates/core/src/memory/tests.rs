//! The memory engine through the [`Engine`](crate::Engine) trait, each future polled once.

mod bed;
mod faults;
mod handover;
mod looks;
