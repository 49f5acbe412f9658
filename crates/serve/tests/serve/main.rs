//! Tests of the real server over its socket: who is let in, what is shown, what is pushed, and how a hold is ended.
#![expect(clippy::unwrap_used, reason = "a test fails by it")]

mod access;
mod breaking;
mod encrypted;
mod http;
mod live;
mod names;
mod outage;
mod site;
