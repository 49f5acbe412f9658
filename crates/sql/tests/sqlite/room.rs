//! A full disk: the directory is a small file system in the mount namespace of another process.

use std::{fs, path::PathBuf, process::Command};

use crate::{
    helper::{Helper, am_root},
    rig::Rig,
};

fn mounted(rig: &Rig, options: &str, order: &str) -> (Helper, PathBuf) {
    let dir = rig.dir().join("mounted");
    fs::create_dir(&dir).unwrap();
    let script =
        format!("mount -t tmpfs -o mode=700,{options} none '{}' && {order} exec \"$@\"", dir.display());
    let user: &[&str] = if am_root() { &[] } else { &["--user", "--map-root-user"] };
    let unshare = [&["unshare", "--mount"], user, &["sh", "-c", &script, "sh"]].concat();
    let works = Command::new(unshare[0]).args(&unshare[1..]).arg("true").status();
    assert!(works.is_ok_and(|status| status.success()), "this test needs mount namespaces: run it as root");
    let path = dir.join("locks.db");
    (Helper::start_as(&unshare, &path), path)
}

#[test]
fn a_full_disk_is_refused_and_holds_stay() {
    let rig = Rig::new();
    let ballast = rig.dir().join("mounted/ballast");
    let fill = format!("head -c 100000 /dev/zero > '{}' &&", ballast.display());
    let (mut helper, _) = mounted(&rig, "size=500k", &fill);
    let reply = helper.ask("many job");
    assert!(reply.contains("Refused") && reply.contains("full"), "{reply}");
    assert_eq!(helper.ask(&format!("remove {}", ballast.display())), "Ok(())");
    assert_eq!(helper.ask("claim more"), "held");
    assert_eq!(helper.ask("claim job0"), "waiting");
    assert_eq!(helper.ask("release job1"), "Freed");
}

#[test]
fn a_disk_without_room_for_the_file_is_refused() {
    let rig = Rig::new();
    let (mut helper, path) = mounted(&rig, "nr_inodes=2", "");
    let reply = helper.ask("claim job");
    assert!(reply.contains(path.to_str().unwrap()), "{reply}");
    assert!(reply.contains("Denied") || reply.contains("Refused"), "{reply}");
}

#[test]
fn a_read_only_file_system_is_refused() {
    let rig = Rig::new();
    let (mut helper, path) = mounted(&rig, "ro", "");
    let reply = helper.ask("claim job");
    assert!(reply.contains("Refused") && reply.contains("read-only"), "{reply}");
    assert!(reply.contains(path.parent().unwrap().to_str().unwrap()), "{reply}");
}
