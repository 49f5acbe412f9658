//! Programs in Java.

use std::{fs, time::SystemTime};

use leasehold_testkit::server::java_program;

#[test]
fn a_program_is_recompiled_when_its_source_changes() {
    let directory = tempfile::tempdir().unwrap();
    let source = directory.path().join("Told.java");
    let run = |text: &str| {
        let body = format!("System.out.print(\"{text} \" + words[0]);");
        let all = format!("class Told {{ public static void main(String[] words) {{ {body} }} }}");
        fs::write(&source, all).unwrap();
        let compiled = java_program(&source, &[], directory.path()).arg("word").output().unwrap();
        String::from_utf8(compiled.stdout).unwrap()
    };
    assert_eq!(run("first"), "first word");
    assert_eq!(run("second"), "second word");
    // A source that is older than the compiled program counts as unchanged.
    let unread = fs::File::options().write(true).open(&source).unwrap();
    unread.set_len(0).unwrap();
    unread.set_modified(SystemTime::UNIX_EPOCH).unwrap();
    let again = java_program(&source, &[], directory.path()).arg("word").output().unwrap();
    assert_eq!(String::from_utf8(again.stdout).unwrap(), "second word");
}
