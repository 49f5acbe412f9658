//! Tokens always grow: across modes, blocks, processes and power cuts.

use super::*;

#[test]
fn one_counter_serves_all_modes_and_blocks() {
    let scratch = Scratch::new();
    let engine = scratch.engine();
    let mut next = 1;
    let mut lineage = None;
    for (mode, tokens) in
        [(Mode::Exclusive, 1), (Mode::Shared, 10), (Mode::Exclusive, 100), (PERMIT, 0), (PERMIT, 1)]
    {
        let first = Claim { tokens, ..claim("job", mode) };
        let grant = held(create(&engine, &first));
        assert_eq!((grant.token.number, grant.tokens), (next, tokens.max(1)));
        assert_eq!(*lineage.get_or_insert(grant.token.lineage), grant.token.lineage);
        next += u64::from(grant.tokens);
        release_claim(&engine, &first);
    }
}

#[test]
fn after_a_power_cut_the_next_token_is_larger() {
    let scratch = Scratch::new();
    let mut largest = 0;
    for boot_id in 1..=4_u8 {
        let engine = FileEngine::open_in_boot(Some(scratch.dir()), Env::system(), [boot_id; 16]).unwrap();
        let mut on_disk = Vec::new();
        for (n, tokens) in [1, 1, 500_000, 500_000, 500_000, 3].into_iter().enumerate() {
            let before = std::fs::read(scratch.state_file("job")).unwrap_or_default();
            let first =
                Claim { tokens, ..claim("job", if n % 2 == 0 { Mode::Exclusive } else { Mode::Shared }) };
            let number = held(create(&engine, &first)).token.number;
            assert!(number > largest);
            largest = number + u64::from(tokens) - 1;
            let after = std::fs::read(scratch.state_file("job")).unwrap();
            // The disk has the state of the last sync: a larger `promised` (at 664) shows that there was one.
            let promised = |bytes: &[u8]| bytes.get(664..672).map(<[u8]>::to_vec);
            if promised(&before) != promised(&after) {
                on_disk = after;
                // `current` was not part of that sync.
                on_disk[656..664]
                    .copy_from_slice(&before.get(656..664).map_or([0; 8], |old| old.try_into().unwrap()));
            }
            release_claim(&engine, &first);
        }
        std::fs::write(scratch.state_file("job"), on_disk).unwrap();
    }
}

#[test]
fn after_a_reboot_the_end_of_the_last_hold_is_unknown() {
    let scratch = Scratch::new();
    let engine_in_boot =
        |boot| FileEngine::open_in_boot(Some(scratch.dir()), Env::system(), [boot; 16]).unwrap();
    let (first, second) = (claim("job", Mode::Exclusive), claim("job", Mode::Exclusive));
    let engine = engine_in_boot(1);
    assert_eq!(held(create(&engine, &first)).previous, Previous::Clean);
    release_claim(&engine, &first);
    simulate_kill(engine);
    let engine = engine_in_boot(2);
    assert_eq!(held(create(&engine, &second)).previous, Previous::Unknown);
    simulate_kill(engine);
    assert_eq!(held(create(&engine_in_boot(3), &claim("job", Mode::Exclusive))).previous, Previous::Lapsed);
}

#[test]
fn the_table_of_an_earlier_boot_is_void() {
    let scratch = Scratch::new();
    let engine_in_boot =
        |boot| FileEngine::open_in_boot(Some(scratch.dir()), Env::system(), [boot; 16]).unwrap();
    let engine = engine_in_boot(1);
    let (holder, waiter) = (claim("quota", PERMIT), claim("quota", Mode::Permits { count: 2, limit: 2 }));
    held(create(&engine, &holder));
    waiting(create(&engine, &waiter));
    let bytes = std::fs::read(scratch.state_file("quota")).unwrap();
    simulate_kill(engine);
    std::fs::write(scratch.state_file("quota"), bytes).unwrap();
    held(create(&engine_in_boot(2), &try_claim("quota", Mode::Permits { count: 7, limit: 7 })));
}
