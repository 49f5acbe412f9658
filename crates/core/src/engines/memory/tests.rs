//! The memory engine, tested through the [`Engine`](crate::Engine) trait; each future is polled once.

mod faults;
mod fixture;
mod handover;
mod inspect;
mod memos;
