//! Waiting: never in the server, and woken by the release.

use std::{thread::spawn, time::Duration};

use tokio_postgres::AsyncMessage;

use super::rig::SessionRig;
use crate::rig::{acquire, until};

/// A statement that waits in the server would keep vacuum from removing rows.
#[test]
fn a_waiting_claim_leaves_no_statement_in_the_server() {
    let rig = SessionRig::new();
    let guard = acquire(&rig.locks(), "a");
    let waiter = rig.locks();
    let waiting = spawn(move || acquire(&waiter, "a"));
    until("the claim waits", || rig.show("a").waiters.len() == 1);
    let mut idle = 0;
    while idle < 20 {
        assert_eq!(rig.server.query("SELECT 1 FROM pg_locks WHERE NOT granted").len(), 0);
        let all_idle = rig.server.query(
            "SELECT 1 FROM pg_stat_activity WHERE application_name = 'leasehold' AND \
             (state <> 'idle' OR backend_xmin IS NOT NULL)",
        );
        idle += usize::from(all_idle.is_empty());
    }
    guard.release_blocking().unwrap();
    waiting.join().unwrap().release_blocking().unwrap();
}

/// A release notifies the waiting processes, and a release without waiters notifies nobody.
#[test]
fn only_a_release_with_waiters_notifies() {
    let rig = SessionRig::new();
    let locks = rig.locks();
    let guard = acquire(&locks, "a");
    let waiter = rig.locks();
    let waiting = spawn(move || acquire(&waiter, "a").release_blocking().unwrap());
    let waiters = "SELECT to_hex((classid::int8 << 32) | objid::int8) FROM pg_locks WHERE mode = 'ShareLock'";
    until("the claim waits", || rig.server.query(waiters).len() == 1);
    let channel = format!("leasehold_{:0>16}", rig.server.query(waiters)[0]);
    let (sender, mut received) = tokio::sync::mpsc::unbounded_channel();
    rig.run(async {
        let url = rig.server.url();
        let (client, mut connection) = tokio_postgres::connect(&url, tokio_postgres::NoTls).await.unwrap();
        tokio::spawn(async move {
            while let Some(Ok(message)) =
                std::future::poll_fn(|context| connection.poll_message(context)).await
            {
                if let AsyncMessage::Notification(notification) = message {
                    drop(sender.send(notification.payload().to_owned()));
                }
            }
        });
        client.batch_execute(&format!("LISTEN {channel}")).await.unwrap();
        guard.release().await.unwrap();
        waiting.join().unwrap();
        until("nothing is left", || rig.advisory_locks().is_empty());
        client.batch_execute(&format!("NOTIFY {channel}, 'first'")).await.unwrap();
        let mut notifications = 0;
        while received.recv().await.unwrap() != "first" {
            notifications += 1;
        }
        assert!(notifications > 0, "a process waited");
        for _ in 0..20 {
            locks.mutex("a").acquire().await.unwrap().release().await.unwrap();
        }
        client.batch_execute(&format!("NOTIFY {channel}, 'last'")).await.unwrap();
        assert_eq!(received.recv().await.unwrap(), "last", "no process waited");
    });
}

/// Every process gets the name, also while another one claims it again and again.
#[test]
fn no_process_starves() {
    let rig = SessionRig::new();
    let busy = rig.locks();
    let stop = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
    let claims_again = {
        let stop = std::sync::Arc::clone(&stop);
        spawn(move || {
            while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                acquire(&busy, "a").release_blocking().unwrap();
            }
        })
    };
    let others: Vec<_> = (0..3)
        .map(|_| {
            let locks = rig.locks();
            spawn(move || (0..20).for_each(|_| acquire(&locks, "a").release_blocking().unwrap()))
        })
        .collect();
    others.into_iter().for_each(|other| other.join().unwrap());
    stop.store(true, std::sync::atomic::Ordering::Relaxed);
    claims_again.join().unwrap();
}

/// A waiting process that leaves frees the key of the poller: another one takes it, and finds the name of a holder that
/// ended without a notification.
#[test]
fn another_waiter_takes_over_the_polling() {
    let rig = SessionRig::new();
    let (proxy, holder) = rig.proxied();
    let guard = acquire(&holder, "a");
    let impatient = rig.locks();
    let error = impatient.mutex("a").blocking().acquire_within(Duration::from_millis(300)).unwrap_err();
    assert!(error.is_timed_out(), "{error}");
    let waiter = rig.locks();
    let waiting = spawn(move || acquire(&waiter, "a"));
    until("the claim waits", || rig.show("a").waiters.len() == 1);
    proxy.cut_clients();
    proxy.drop_connections();
    waiting.join().unwrap().release_blocking().unwrap();
    until("the former holder is told", || !guard.check());
}
