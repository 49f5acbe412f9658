//! Missing permission, space or descriptors. The engine runs in helper processes that have less of these than the test
//! process.

use std::os::unix::fs::PermissionsExt;

use super::{helper::Helper, *};

const NOBODY: [&str; 4] = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"];

fn is_root() -> bool {
    nix::unistd::geteuid().is_root()
}

#[test]
fn a_foreign_directory_is_denied_with_its_owner() {
    let scratch = Scratch::new();
    scratch.engine();
    // Without root, the only directory that certainly belongs to another user is root's.
    let (prefix, dir): (&[&str], _) =
        if is_root() { (&NOBODY, scratch.dir()) } else { (&[], PathBuf::from("/usr")) };
    let mut helper = Helper::start_as(prefix, &dir);
    let reply = helper.read_reply();
    assert!(reply.contains("Denied") && reply.contains(dir.to_str().unwrap()), "{reply}");
}

#[test]
fn a_shared_directory_works_for_its_group_and_denies_others_files() {
    assert!(is_root(), "becoming another user needs root: run this test as root");
    let scratch = Scratch::new();
    std::fs::create_dir(scratch.dir()).unwrap();
    nix::unistd::chown(&scratch.dir(), None, Some(65534.into())).unwrap();
    std::fs::set_permissions(scratch.dir(), PermissionsExt::from_mode(0o2770)).unwrap();
    let engine = scratch.engine();
    let first = claim("job", Mode::Exclusive);
    held(create(&engine, &first));
    let mut helper = Helper::start_as(&NOBODY, &scratch.dir());
    assert_eq!(helper.request("claim job exclusive"), "waiting 0");
    release_claim(&engine, &first);
    assert_eq!(helper.request("ask"), "held 2");
    assert_eq!(helper.request("claim own shared"), "held 1");
    let second = claim("own", Mode::Exclusive);
    waiting(create(&engine, &second));
    assert_eq!(helper.request("release"), "Freed");
    held(ask(&engine, &second));
    std::fs::write(scratch.lock_file("secret"), "").unwrap();
    std::fs::set_permissions(scratch.lock_file("secret"), PermissionsExt::from_mode(0o600)).unwrap();
    nix::unistd::chown(&scratch.lock_file("secret"), Some(0.into()), Some(0.into())).unwrap();
    std::fs::write(scratch.lock_file("secret"), "x").unwrap();
    let reply = helper.request("try secret exclusive");
    assert!(reply.contains("Denied") && reply.contains("secret.lock"), "{reply}");
}

#[test]
fn too_many_open_files_are_refused_with_advice() {
    let scratch = Scratch::new();
    let engine = scratch.engine();
    let mut helper = Helper::start_as(&["prlimit", "--nofile=60"], &scratch.dir());
    let reply = helper.request("many job");
    assert!(reply.contains("Refused") && reply.contains("ulimit -n"), "{reply}");
    taken(create(&engine, &try_claim("job0", Mode::Exclusive)));
    helper.kill();
    held(create(&engine, &try_claim("job0", Mode::Exclusive)));
}

/// A process in which `dir` is a file system of its own, in a mount namespace: as root, or with a user namespace.
fn mounted(options: &str, dir: &Path) -> Helper {
    std::fs::create_dir(dir).unwrap();
    let script = format!("mount -t tmpfs -o mode=700,{options} none '{}' && exec \"$@\"", dir.display());
    Helper::start_as(&unshared(&script), dir)
}

/// The command that runs `script` in a mount namespace and then the command after it.
fn unshared(script: &str) -> Vec<&str> {
    let user: &[&str] = if is_root() { &[] } else { &["--user", "--map-root-user"] };
    let unshare = [&["unshare", "--mount"], user, &["sh", "-c", script, "sh"]].concat();
    let works = program(unshare[0]).args(&unshare[1..]).arg("true").status();
    assert!(works.is_ok_and(|status| status.success()), "this test needs mount namespaces: run it as root");
    unshare
}

#[test]
fn a_full_disk_is_refused_with_advice() {
    let scratch = Scratch::new();
    let reply = mounted("size=40k", &scratch.dir()).request("many job");
    assert!(reply.contains("Refused") && reply.contains("free space"), "{reply}");
    let scratch = Scratch::new();
    let reply = mounted("nr_inodes=8", &scratch.dir()).request("many job");
    assert!(reply.contains("Refused") && reply.contains("free space"), "{reply}");
}

#[test]
fn a_read_only_file_system_is_refused() {
    let scratch = Scratch::new();
    let reply = mounted("ro", &scratch.dir()).request("try job exclusive");
    assert!(reply.contains("Refused") && reply.contains("read-only"), "{reply}");
}

#[test]
fn a_read_only_file_system_can_be_inspected() {
    let scratch = Scratch::new();
    let engine = scratch.engine();
    let first = claim("job", Mode::Exclusive);
    held(create(&engine, &first));
    let min_hold = Some(Duration::from_secs(3600));
    assert!(matches!(
        send_release(&engine, Release { min_hold, ..release_request(&first, None) }),
        Released::Freed
    ));
    let dir = scratch.dir().display().to_string();
    let script = format!("mount --bind '{dir}' '{dir}' && mount -o remount,ro,bind '{dir}' && exec \"$@\"");
    let mut helper = Helper::start_as(&unshared(&script), &scratch.dir());
    assert_eq!(helper.request("list"), "job: kept");
    let reply = helper.request("try job exclusive");
    assert!(reply.contains("Refused") && reply.contains("read-only"), "{reply}");
}
