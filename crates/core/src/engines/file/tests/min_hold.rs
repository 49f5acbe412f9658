//! The minimum hold time (`--at-least`): the name stays taken without a holder.

use super::{
    super::{
        dir::open::Access,
        table::Table,
        table::wait_order::{Asker, Verdict},
    },
    *,
};

fn release_with_min_hold(engine: &FileEngine, claim: &Claim, seconds: u64) {
    let release = Release { min_hold: Some(Duration::from_secs(seconds)), ..release_request(claim, None) };
    assert!(matches!(send_release(engine, release), Released::Freed));
}

#[test]
fn a_name_in_its_minimum_hold_is_taken_and_hints_its_end() {
    let scratch = Scratch::new();
    let (clock, env) = env_with_manual_clock();
    let engine = FileEngine::open(Some(scratch.dir()), env).unwrap();
    let first = claim("job", Mode::Exclusive);
    held(create(&engine, &first));
    release_with_min_hold(&engine, &first, 10);
    for mode in [Mode::Exclusive, Mode::Shared] {
        assert_eq!(taken(create(&engine, &try_claim("job", mode))).ask_in, Some(Duration::from_secs(10)));
    }
    let waiter = claim("job", Mode::Exclusive);
    assert_eq!(waiting(create(&engine, &waiter)).ask_in, Some(Duration::from_secs(10)));
    clock.advance(Duration::from_secs(9));
    assert_eq!(waiting(ask(&engine, &waiter)).ask_in, Some(Duration::from_secs(1)));
    let view = pollster::block_on(crate::Inspect::show(&engine, &name("job"))).unwrap();
    assert_eq!(
        (view.holders[0].owner.as_str(), view.holders[0].remaining),
        ("kept", Some(Duration::from_secs(1)))
    );
    clock.advance(Duration::from_secs(1));
    assert_eq!(held(ask(&engine, &waiter)).previous, Previous::Clean);
}

#[test]
fn a_minimum_hold_admits_readers_and_counts_permits() {
    let scratch = Scratch::new();
    let (clock, env) = env_with_manual_clock();
    let engine = FileEngine::open(Some(scratch.dir()), env).unwrap();
    let (reader, one, two) = (claim("doc", Mode::Shared), claim("quota", PERMIT), claim("quota", PERMIT));
    for claim in [&reader, &one, &two] {
        held(create(&engine, claim));
        release_with_min_hold(&engine, claim, 5);
    }
    taken(create(&engine, &try_claim("doc", Mode::Exclusive)));
    let other = claim("doc", Mode::Shared);
    held(create(&engine, &other));
    release_claim(&engine, &other);
    assert_eq!(taken(create(&engine, &try_claim("quota", PERMIT))).ask_in, Some(Duration::from_secs(5)));
    clock.advance(Duration::from_secs(5));
    held(create(&engine, &try_claim("doc", Mode::Exclusive)));
    held(create(&engine, &try_claim("quota", PERMIT)));
}

#[test]
fn a_reboot_ends_a_minimum_hold() {
    let scratch = Scratch::new();
    let engine = scratch.engine();
    let single_permit = Mode::Permits { count: 1, limit: 1 };
    for (text, mode) in [("job", Mode::Exclusive), ("quota", single_permit)] {
        let first = claim(text, mode);
        held(create(&engine, &first));
        release_with_min_hold(&engine, &first, 3600);
        taken(create(&engine, &try_claim(text, mode)));
    }
    simulate_kill(engine);
    let engine = FileEngine::open_in_boot(Some(scratch.dir()), Env::system(), [7; 16]).unwrap();
    held(create(&engine, &try_claim("job", Mode::Exclusive)));
    held(create(&engine, &try_claim("quota", single_permit)));
}

#[test]
fn permits_released_into_a_minimum_hold_during_a_claim_count() {
    let scratch = Scratch::new();
    let (engine, other) = (scratch.engine(), scratch.engine());
    let mode = |count| Mode::Permits { count, limit: 3 };
    let holder = claim("quota", mode(2));
    held(create(&other, &holder));
    // Another claim reads the table; then the holder releases; then the other claim asks the kernel whether the
    // holder is alive.
    let (paths, lock_file) = opened(&engine, "quota");
    let state_file = engine.state_files.get(&engine.dir, &paths, Access::Existing).unwrap().unwrap();
    let mut table =
        Table::load(&engine, &paths, &lock_file, &state_file, lock_file.latch().unwrap()).unwrap();
    release_with_min_hold(&other, &holder, 60);
    let asker = Asker { mode: mode(2), ticket: None };
    let judgement = table.judge(asker, engine.env.clock.now()).unwrap();
    assert!(matches!(judgement.verdict, Verdict::MinHold(_)), "{judgement:?}");
    drop(table);
    taken(create(&engine, &try_claim("quota", mode(2))));
    held(create(&engine, &try_claim("quota", mode(1))));
}

/// The end of a minimum hold time is stored by the clock of the machine, because a container can have another clock.
#[test]
fn a_minimum_hold_is_equally_long_in_all_time_namespaces() {
    let scratch = Scratch::new();
    let engine = scratch.engine();
    let user: &[&str] =
        if nix::unistd::Uid::effective().is_root() { &[] } else { &["--user", "--map-root-user"] };
    let unshare = [&["unshare", "--time", "--fork", "--boottime", "86400"], user].concat();
    let mut shifted = super::helper::Helper::start_as(&unshare, &scratch.dir());
    let ours = claim("ours", Mode::Exclusive);
    held(create(&engine, &ours));
    release_with_min_hold(&engine, &ours, 3600);
    assert_eq!(shifted.request("try ours exclusive"), "taken", "its clock is a day ahead");
    let reply = shifted.request("claim theirs exclusive");
    assert!(reply.starts_with("held"), "{reply}");
    assert_eq!(shifted.request("release-after 3600"), "Freed");
    let time_left = taken(create(&engine, &try_claim("theirs", Mode::Exclusive))).ask_in.unwrap();
    assert!(time_left <= Duration::from_secs(3600), "{time_left:?}");
}
