//! The memory engine through the [`Engine`](crate::Engine) trait, each future polled once.

mod faults;
mod fixture;
mod handover;
mod looks;
