//! Links the command to a fixed address, so that it starts faster: with a short CMD the start takes most of the time.
//! See docs/decisions/0012.

use std::env;

fn main() {
    let is_linux = env::var("CARGO_CFG_TARGET_OS").is_ok_and(|system| system == "linux");
    assert!(is_linux, "the command leasehold needs Linux; the library builds on other systems too");
    println!("cargo:rerun-if-changed=build.rs");
    let is = |variable: &str, value: &str| env::var(variable).is_ok_and(|found| found == value);
    let is_release = is("PROFILE", "release");
    if is_release && is("CARGO_CFG_TARGET_OS", "linux") && is("CARGO_CFG_TARGET_ENV", "gnu") {
        println!("cargo:rustc-link-arg-bins=-no-pie");
    }
}
