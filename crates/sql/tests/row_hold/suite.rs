//! The cases that hold for both databases.

/// Makes a module of tests. `$rig`: a type with a server that has the tables of xxl-job and Quartz.
macro_rules! suite {
    ($rig:ident) => {
        use std::time::Duration;

        use leasehold_core::{Answer, Engine, How, Loss, Name, Released};
        use leasehold_sql::RowTable;
        use leasehold_testkit::claims;

        use crate::{
            rig::{Conforms, acquire, locks, wait_for_loss},
            until::{PATIENCE, until},
        };

        /// The statement of xxl-job, and that of Quartz.
        const XXL_JOB: &str = "SELECT * FROM xxl_job_lock WHERE lock_name = 'schedule_lock' FOR UPDATE";
        const QUARTZ: &str =
            "SELECT * FROM qrtz_locks WHERE sched_name = 'reports' AND lock_name = 'TRIGGER_ACCESS' FOR UPDATE";

        fn xxl_job() -> RowTable {
            RowTable::new("xxl_job_lock", "lock_name").unwrap()
        }

        fn quartz() -> RowTable {
            RowTable::new("qrtz_locks", "lock_name").unwrap().and("sched_name", "reports").unwrap()
        }

        #[test]
        fn conformance() {
            let rig = $rig::new();
            let client = || rig.engine(RowTable::new("wide_lock", "name").unwrap().create());
            let conforms = Conforms { client: &client };
            conforms.assert(15);
        }

        #[test]
        fn the_transactions_of_xxl_job_and_quartz_exclude_and_are_excluded() {
            let rig = $rig::new();
            for (rows, name, statement) in
                [(xxl_job(), "schedule_lock", XXL_JOB), (quartz(), "TRIGGER_ACCESS", QUARTZ)]
            {
                let locks = locks(rig.engine(rows));
                let foreign = rig.foreign();
                foreign.lock(statement);
                assert!(locks.mutex(name).blocking().try_acquire().unwrap_err().is_taken(), "{name}");
                let waiting = {
                    let locks = locks.clone();
                    std::thread::spawn(move || acquire(&locks, name))
                };
                foreign.commit();
                let guard = waiting.join().unwrap();
                let foreign = rig.foreign();
                let next = std::thread::spawn(move || {
                    foreign.lock(statement);
                    foreign
                });
                until("the other program waits", || rig.is_waiting());
                assert!(guard.check() && !next.is_finished(), "{name}");
                guard.release_blocking().unwrap();
                let foreign = next.join().unwrap();
                assert!(locks.mutex(name).blocking().try_acquire().unwrap_err().is_taken(), "{name}");
                // The program is killed: its row is free, without any time limit.
                drop(foreign);
                drop(acquire(&locks, name));
            }
        }

        #[test]
        fn another_row_of_the_same_name_is_another_lock() {
            let rig = $rig::new();
            let other = RowTable::new("qrtz_locks", "lock_name").unwrap().and("sched_name", "other").unwrap();
            let (ours, others) = (locks(rig.engine(quartz())), locks(rig.engine(other)));
            let held = acquire(&ours, "TRIGGER_ACCESS");
            assert!(others.mutex("TRIGGER_ACCESS").blocking().try_acquire().is_ok());
            assert!(held.check());
        }

        #[test]
        fn a_session_that_the_server_ends_is_told_as_a_loss() {
            let rig = $rig::new();
            let locks = locks(rig.engine(xxl_job()));
            // No renewal could tell the loss.
            let request = locks.mutex("schedule_lock").ttl(Duration::from_secs(60)).renew(false);
            let guard = request.blocking().acquire_within(PATIENCE).unwrap();
            rig.end_sessions();
            wait_for_loss(&guard);
            assert_eq!(told_loss(&guard), Loss::Gone);
            // The row is free for another program.
            let foreign = rig.foreign();
            foreign.lock(XXL_JOB);
            foreign.commit();
        }

        #[test]
        fn a_server_that_is_killed_is_told_as_a_loss_and_tokens_are_told_apart() {
            let mut rig = $rig::new();
            let locks = locks(rig.engine(xxl_job()));
            let guard = acquire(&locks, "schedule_lock");
            let before = guard.token();
            rig.server.kill();
            wait_for_loss(&guard);
            assert_eq!(told_loss(&guard), Loss::Gone);
            rig.server.restart();
            let after = acquire(&locks, "schedule_lock").token();
            assert!(after.partial_cmp(&before).is_none_or(std::cmp::Ordering::is_gt), "{after:?} {before:?}");
        }

        #[test]
        fn a_holder_that_is_cut_off_ends_its_hold_before_the_server_frees_the_row() {
            let rig = $rig::new();
            let proxy = leasehold_testkit::server::Proxy::start(rig.server.port());
            let locks = locks(rig.engine_through(proxy.port(), xxl_job()));
            let request = locks.mutex("schedule_lock").ttl(Duration::from_secs(2));
            let guard = request.blocking().acquire_within(PATIENCE).unwrap();
            proxy.hold_requests();
            proxy.hold_answers();
            until("its own clock ends the hold", || !guard.check());
            let other = crate::rig::locks(rig.engine(xxl_job()));
            let taken = other.mutex("schedule_lock").blocking().try_acquire();
            assert!(taken.is_err_and(|error| error.is_taken()), "the server still has the session");
            proxy.drop_connections();
            drop(acquire(&other, "schedule_lock"));
        }

        #[test]
        fn time_limits_of_the_server_do_not_end_a_hold() {
            let rig = $rig::new();
            rig.limit_idle_transactions();
            let locks = locks(rig.engine(xxl_job()));
            let guard = acquire(&locks, "schedule_lock");
            until("the transaction is older than the limits", || rig.is_old());
            assert!(guard.check());
            guard.release_blocking().unwrap();
        }

        #[test]
        fn a_missing_row_is_reported_or_created() {
            let rig = $rig::new();
            let name = "it's \"new\"; \\";
            let error = locks(rig.engine(xxl_job())).mutex(name).blocking().try_acquire().unwrap_err();
            let text = error.to_string();
            assert!(error.is_misconfigured() && text.contains("add create=yes to the URL"), "{text}");
            assert!(text.contains("xxl_job_lock: lock_name="), "{text}");
            let locks = locks(rig.engine(xxl_job().create()));
            acquire(&locks, name).release_blocking().unwrap();
            acquire(&locks, name).release_blocking().unwrap();
            let rows = rig.server.query("SELECT count(*) FROM xxl_job_lock");
            assert_eq!(rows, ["2"], "one row was created");
            let error = locks.mutex("x".repeat(60)).blocking().try_acquire().unwrap_err();
            assert!(error.is_misconfigured() && error.to_string().contains("cannot be created"), "{error:?}");
            // The table has another column, without a default.
            let strict = RowTable::new("strict_lock", "name").unwrap().create();
            let error = crate::rig::locks(rig.engine(strict)).mutex("n").blocking().try_acquire().unwrap_err();
            assert!(error.is_misconfigured() && error.to_string().contains("cannot be created"), "{error:?}");
            let error = crate::rig::locks(rig.engine(RowTable::new("nowhere", "c").unwrap()));
            let error = error.mutex("n").blocking().try_acquire().unwrap_err();
            assert!(error.is_misconfigured(), "{error:?}");
        }

        #[test]
        fn tokens_grow_over_the_grants_of_all_clients() {
            let rig = $rig::new();
            let clients = [0, 1, 2].map(|_| locks(rig.engine(xxl_job())));
            let mut last = None;
            for round in 0..60 {
                let guard = acquire(&clients[round % 3], "schedule_lock");
                assert!(last.is_none_or(|last| guard.token() > last), "{last:?} {:?}", guard.token());
                last = Some(guard.token());
                guard.release_blocking().unwrap();
            }
        }

        #[test]
        fn waiting_claims_have_no_connections_of_their_own() {
            let rig = $rig::new();
            let (holder, others) = (locks(rig.engine(xxl_job())), locks(rig.engine(xxl_job())));
            let held = acquire(&holder, "schedule_lock");
            let runtime = tokio::runtime::Runtime::new().unwrap();
            let engine = rig.engine(xxl_job());
            let claims = [(); 12].map(|()| claims::exclusive("schedule_lock", Duration::from_secs(30)));
            for claim in &claims {
                let answer = runtime.block_on(engine.claim(claim, How::Create)).unwrap();
                assert!(matches!(answer, Answer::Waiting(_)), "{answer:?}");
            }
            assert!((2..=3).contains(&rig.connections()), "{} connections", rig.connections());
            for claim in &claims {
                let released = runtime.block_on(engine.release(&claims::release_of(claim)));
                assert!(matches!(released[..], [Released::Freed]), "{released:?}");
            }
            let waiting: Vec<_> = (0..12)
                .map(|_| {
                    let others = others.clone();
                    std::thread::spawn(move || acquire(&others, "schedule_lock").token())
                })
                .collect();
            held.release_blocking().unwrap();
            let tokens: std::collections::BTreeSet<u64> =
                waiting.into_iter().map(|thread| thread.join().unwrap().number).collect();
            assert_eq!(tokens.len(), 12);
        }

        #[test]
        fn a_name_that_several_rows_have_is_refused() {
            let rig = $rig::new();
            let locks = locks(rig.engine(RowTable::new("qrtz_locks", "lock_name").unwrap()));
            let error = locks.mutex("TRIGGER_ACCESS").blocking().try_acquire().unwrap_err();
            assert!(error.is_misconfigured() && error.to_string().contains("several rows match"), "{error:?}");
            // No row stays locked.
            let foreign = rig.foreign();
            foreign.lock(QUARTZ);
            foreign.commit();
        }

        #[test]
        fn a_release_without_an_answer_is_unknown_until_the_connection_is_closed() {
            let rig = $rig::new();
            let proxy = leasehold_testkit::server::Proxy::start(rig.server.port());
            let engine = rig.engine_through(proxy.port(), xxl_job());
            let runtime = tokio::runtime::Runtime::new().unwrap();
            let claim = claims::exclusive("schedule_lock", Duration::from_secs(30));
            let answer = runtime.block_on(engine.claim(&claim, How::Create)).unwrap();
            assert!(matches!(answer, Answer::Held(_)), "{answer:?}");
            proxy.hold_requests();
            let release = claims::release_of(&claim);
            let released = runtime.block_on(engine.release(&release));
            assert!(matches!(released[..], [Released::Unknown(_)]), "{released:?}");
            until("the connection is closed", || {
                let released = runtime.block_on(engine.release(&release));
                matches!(released[..], [Released::NotThere])
            });
            // The server notices the end of the connection without any help.
            drop(proxy);
            drop(acquire(&locks(rig.engine(xxl_job())), "schedule_lock"));
        }

        #[test]
        fn an_idle_connection_that_the_server_ended_fails_no_inspection() {
            let rig = $rig::new();
            let engine = rig.engine(xxl_job());
            let name = Name::new("schedule_lock").unwrap();
            let runtime = tokio::runtime::Runtime::new().unwrap();
            for _ in 0..2 {
                let view = runtime.block_on(leasehold_core::Inspect::show(&engine, &name)).unwrap();
                assert!(view.holders.is_empty());
                rig.end_sessions();
                until("the session has ended", || rig.connections() == 0);
            }
        }

        #[test]
        fn a_list_that_is_too_long_is_refused() {
            let rig = $rig::new();
            let names: Vec<String> = (0..=1000).map(|number| format!("('many{number}')")).collect();
            rig.server.query(&format!("INSERT INTO xxl_job_lock VALUES {}", names.join(", ")));
            let engine = rig.engine(xxl_job());
            let runtime = tokio::runtime::Runtime::new().unwrap();
            let list = |prefix| runtime.block_on(leasehold_core::Inspect::list(&engine, prefix));
            let error = list("many").unwrap_err().to_string();
            assert!(error.contains("list a longer prefix"), "{error}");
            assert!(list("many1").unwrap().is_empty());
        }

        #[test]
        fn a_locked_row_is_shown_and_listed() {
            let rig = $rig::new();
            let engine = rig.engine(xxl_job());
            let name = Name::new("schedule_lock").unwrap();
            let runtime = tokio::runtime::Runtime::new().unwrap();
            let look = || {
                let show = leasehold_core::Inspect::show(&engine, &name);
                let (view, listed) = runtime.block_on(async {
                    (show.await.unwrap(), leasehold_core::Inspect::list(&engine, "sched").await.unwrap())
                });
                assert_eq!(listed.len(), view.holders.len());
                view
            };
            assert!(look().holders.is_empty());
            let holder = locks(rig.engine(xxl_job()));
            let guard = acquire(&holder, "schedule_lock");
            let view = look();
            assert_eq!(view.holders.len(), 1, "{view:?}");
            assert_eq!(view.holders[0].owner.starts_with("leasehold"), rig.shows_holders(), "{view:?}");
            let token = guard.token().number;
            let break_hold =
                || runtime.block_on(leasehold_core::Inspect::break_hold(&engine, &name, token, false));
            let told = break_hold().unwrap_err().to_string();
            assert!(told.contains(&rig.how_to_end(&view.holders[0].id)), "{told}");
            guard.release_blocking().unwrap();
            assert!(look().holders.is_empty());
            assert_eq!(break_hold().unwrap(), leasehold_core::Broken::NotHeld);
        }
    };
}
