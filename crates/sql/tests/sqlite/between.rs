//! Several processes on one file.

use std::time::{Duration, Instant};

use leasehold_core::{Loss, Renewed};

use crate::{
    client::{Client, claim},
    helper::{Helper, am_root},
    rig::Rig,
};

#[test]
fn processes_exclude_each_other_and_hand_over() {
    let rig = Rig::new();
    let client = Client::new(&rig.path());
    let mut other = Helper::start(&rig.path());
    assert_eq!(other.tell("claim job"), "held");
    let job = claim("job");
    client.wait(&job);
    assert_eq!(other.tell("release job"), "Freed");
    let begin = Instant::now();
    let grant = client.granted(job.id);
    assert!(begin.elapsed() < Duration::from_millis(250), "heard of after {:?}", begin.elapsed());
    assert!(matches!(client.renew(&job, &grant), Renewed::Kept { .. }));
    assert_eq!(other.tell("claim job"), "waiting");
}

#[test]
fn the_lock_of_a_killed_process_comes_free_when_its_lease_ends() {
    let rig = Rig::new();
    let client = Client::new(&rig.path());
    let mut other = Helper::start(&rig.path());
    assert_eq!(other.tell("brief job"), "held");
    let begin = Instant::now();
    let job = claim("job");
    client.wait(&job);
    other.kill();
    loop {
        if let leasehold_core::Answer::Held(_) = client.create(&job).unwrap() {
            break;
        }
        assert!(begin.elapsed() < Duration::from_secs(5));
        std::thread::sleep(Duration::from_millis(20));
    }
    assert!(begin.elapsed() > Duration::from_millis(900), "not before: {:?}", begin.elapsed());
}

#[test]
fn processes_that_are_killed_while_they_write_leave_a_file_that_works() {
    let rig = Rig::new();
    let client = Client::new(&rig.path());
    let job = claim("job");
    let grant = client.hold(&job);
    for _ in 0..5 {
        let mut others = [Helper::start(&rig.path()), Helper::start(&rig.path())];
        others.iter_mut().for_each(|other| other.send("churn 8"));
        others.iter_mut().for_each(|other| assert_eq!(other.hear(), "churning"));
        others.into_iter().for_each(Helper::kill);
        assert_eq!(rig.says("PRAGMA integrity_check"), [r#"Text("ok")"#]);
        let said = client.renew(&job, &grant);
        assert!(matches!(said, Renewed::Kept { .. }), "{said:?}");
        let free = claim("free");
        let other = client.hold(&free);
        client.free(&free, &other);
    }
    client.free(&job, &grant);
    assert!(matches!(client.renew(&job, &grant), Renewed::Lost(Loss::Gone)));
}

#[test]
fn a_process_whose_clock_was_shifted_is_refused() {
    assert!(am_root(), "a time namespace needs root: run this test as root");
    let rig = Rig::new();
    let shifted = ["unshare", "--time", "--fork", "--boottime", "86400"];
    let said = Helper::start_as(&shifted, &rig.path()).tell("claim job");
    assert!(said.contains("Misconfigured") && said.contains("time namespace"), "{said}");
}

#[test]
fn who_has_waited_for_long_hears_at_once_all_the_same() {
    let rig = Rig::new();
    let client = Client::new(&rig.path());
    let mut other = Helper::start(&rig.path());
    for round in 0..4 {
        let name = format!("job-{round}");
        assert_eq!(other.tell(&format!("claim {name}")), "held");
        let job = claim(&name);
        client.wait(&job);
        // By now it looks four times a second by itself.
        std::thread::sleep(Duration::from_millis(2200));
        assert_eq!(other.tell(&format!("release {name}")), "Freed");
        let begin = Instant::now();
        let grant = client.granted(job.id);
        assert!(begin.elapsed() < Duration::from_millis(125), "heard of after {:?}", begin.elapsed());
        client.free(&job, &grant);
    }
}
