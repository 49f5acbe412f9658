//! Permits: processes that take several permits of a name take them one process at a time, behind a gate.

use std::time::Duration;

use leasehold_core::{Answer, Claim, Engine, Fault, How, Mode, Renewed};
use leasehold_testkit::{claims, server::PostgresServer};

use super::{limits::hold_of, rig::SessionRig};
use crate::rig::{acquire, release_of, until};

/// A server that logs each statement with its parameters.
const LOGGING: [&str; 3] =
    ["logging_collector=on", "log_min_duration_statement=0", "log_parameter_max_length=-1"];
/// The key of the gate in the log: the only third parameter that is a number.
const GATE: &str = "SELECT substring(pg_read_file(pg_current_logfile()) FROM '\\$3 = ''(-?[0-9]+)''')";

fn permits(count: u32) -> Claim {
    Claim { mode: Mode::Permits { count, limit: 3 }, ..claims::exclusive("a", Duration::from_secs(600)) }
}

/// Another client is between the locks of its permits, and stays there: no permit is granted and none is left behind,
/// the claim is told to try again, and the other holds of the session stay.
#[test]
fn a_gate_that_another_client_holds_is_reported_and_leaves_nothing() {
    let rig = SessionRig::of(PostgresServer::start(&LOGGING));
    acquire_permits(&rig);
    let mut gate = String::new();
    until("the log has the key of the gate", || {
        gate = rig.server.query(GATE).concat();
        !gate.is_empty()
    });
    let engine = rig.engine();
    rig.run(async {
        let kept = claims::exclusive("kept", Duration::from_secs(600));
        let Ok(Answer::Held(grant)) = engine.claim(&kept, How::Create).await else { panic!("it is free") };
        let (other, connection) =
            tokio_postgres::connect(&rig.server.url(), tokio_postgres::NoTls).await.unwrap();
        tokio::spawn(connection);
        other.batch_execute(&format!("BEGIN; SELECT pg_advisory_xact_lock({gate})")).await.unwrap();
        let claims = [permits(1), permits(2)];
        for claim in &claims {
            let error = engine.claim(claim, How::Create).await.unwrap_err();
            let says_why = error.message.contains("other processes take permits of this name all the time");
            assert!(error.fault == Fault::Retry && says_why, "{error:?}");
            assert_eq!(rig.advisory_locks().len(), 2, "the lock of the other name, and the gate");
        }
        let renewed = engine.renew(&[hold_of(&kept, &grant)]).await;
        assert!(matches!(renewed[..], [Renewed::Extended { .. }]), "{renewed:?}");
        other.batch_execute("COMMIT").await.unwrap();
        for claim in &claims {
            let answer = engine.claim(claim, How::Create).await;
            assert!(matches!(answer, Ok(Answer::Held(_))), "{answer:?}");
        }
        let releases: Vec<_> = claims.iter().chain([&kept]).flat_map(release_of).collect();
        engine.release(&releases).await;
    });
    assert_eq!(rig.advisory_locks(), [""; 0]);
    acquire(&rig.locks(), "a").release_blocking().unwrap();
}

/// Takes two permits, and releases them.
fn acquire_permits(rig: &SessionRig) {
    let engine = rig.engine();
    rig.run(async {
        let claim = permits(2);
        assert!(matches!(engine.claim(&claim, How::Create).await, Ok(Answer::Held(_))));
        engine.release(&release_of(&claim)).await;
    });
}
