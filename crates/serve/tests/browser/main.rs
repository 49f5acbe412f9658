//! Tests of the page for operators in headless Chromium, by clicks as a person makes them.
//!
//! With `LEASEHOLD_WRITE_PICTURES=1` the tests write the pictures of the documentation.
#![expect(clippy::unwrap_used, reason = "a test fails by it")]

mod attack;
mod chromium;
mod clicks;
#[path = "../serve/http.rs"]
#[expect(dead_code, reason = "its other functions are for the tests of the socket")]
mod http;
mod many;
#[path = "../serve/site.rs"]
#[expect(dead_code, reason = "its other functions are for the tests of the socket")]
mod site;
