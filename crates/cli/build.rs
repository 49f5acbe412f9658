//! Links the command to a fixed address, so that it starts faster: with a short CMD the start takes most of the time.
//! See docs/decisions/0012. Makes one function of functions with the same code, so that the command is smaller.

use std::{env, fs, path::PathBuf, process::Command};

/// The option of LLVM's linker for that. LLVM's linker compares code only, and never the constants of a program.
const FOLD: &str = "-Wl,--icf=all";

fn main() {
    let is_linux = env::var("CARGO_CFG_TARGET_OS").is_ok_and(|system| system == "linux");
    assert!(is_linux, "the command leasehold needs Linux; the library builds on other systems too");
    println!("cargo:rerun-if-changed=build.rs");
    let is = |variable: &str, value: &str| env::var(variable).is_ok_and(|found| found == value);
    let is_release = is("PROFILE", "release");
    if is_release && is("CARGO_CFG_TARGET_OS", "linux") && is("CARGO_CFG_TARGET_ENV", "gnu") {
        println!("cargo:rustc-link-arg-bins=-no-pie");
        if linker_knows(FOLD).unwrap_or(false) {
            println!("cargo:rustc-link-arg-bins={FOLD}");
        }
    }
}

/// Whether the linker of this build links a program with this option. Rust links by LLVM's linker on x86-64, from 1.90
/// on. Before, and on other machines, it uses the linker of the system, which may not know the option.
fn linker_knows(option: &str) -> Option<bool> {
    let directory = PathBuf::from(env::var_os("OUT_DIR")?);
    let source = directory.join("empty.rs");
    fs::write(&source, "fn main() {}").ok()?;
    let mut rustc = Command::new(env::var_os("RUSTC")?);
    rustc.args(["--target", &env::var("TARGET").ok()?, "-C", &format!("link-arg={option}")]);
    if let Ok(linker) = env::var("RUSTC_LINKER") {
        rustc.arg("-C").arg(format!("linker={linker}"));
    }
    let flags = env::var("CARGO_ENCODED_RUSTFLAGS").unwrap_or_default();
    rustc.args(flags.split('\x1f').filter(|flag| !flag.is_empty()));
    let program = directory.join("empty");
    let built = rustc.arg("-o").arg(&program).arg(source).output().ok()?;
    let _ = fs::remove_file(program);
    Some(built.status.success())
}
