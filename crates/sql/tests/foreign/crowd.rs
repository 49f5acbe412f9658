//! Many claims of one client that wait for rows, and renewals meanwhile.

use std::{sync::Arc, thread, time::Duration};

use leasehold_core::{Claim, Engine, How, Renewed};
use leasehold_sql::{ForeignTableEngine, Layout};
use leasehold_testkit::claims;

use super::{held, hold_of, try_claim};
use crate::until::until;

/// How many claims wait for a row at the same time: so many that a renewal behind them would be too late.
const BLOCKED: usize = 24;
/// A connection that has just been closed is still counted for a moment: only this many counts in a row matter.
const COUNTS: usize = 5;
const RENEWALS: usize = 5;

/// Inserts the rows of all these claims, for a transaction that stays open.
pub(crate) fn rows() -> String {
    let rows: Vec<String> = (0..BLOCKED).map(|number| format!("('blocked-{number}')")).collect();
    format!("INSERT INTO method_lock (method_name) VALUES {}", rows.join(", "))
}

/// Claims that wait for rows do not use all connections, however few there are: renewals find one. And there are never
/// more than allowed. Another transaction has inserted the [`rows`].
pub(crate) async fn a_client_keeps_within_its_connections_and_renews(
    ours: Arc<ForeignTableEngine>,
    most: usize,
    connections: impl Fn() -> usize,
) {
    let claim = try_claim(Layout::Insert);
    let grant = held(&*ours, &claim).await;
    let block = |number: usize| {
        let ours = Arc::clone(&ours);
        let blocked = claims::exclusive(&format!("blocked-{number}"), claim.ttl);
        let blocked = Claim { may_queue: false, ..blocked };
        tokio::spawn(async move {
            loop {
                let _ = ours.claim(&blocked, How::Create).await;
            }
        })
    };
    let blocked: Vec<_> = (0..BLOCKED).map(block).collect();
    let is_excess = |_| {
        thread::sleep(Duration::from_millis(20));
        connections() > most
    };
    for renewal in 0..RENEWALS {
        let renewed = ours.renew(&[hold_of(&claim, &grant)]).await;
        assert!(matches!(renewed[..], [Renewed::Extended { .. }]), "renewal {renewal}: {renewed:?}");
        assert!(!(0..COUNTS).all(is_excess), "{} connections", connections());
    }
    until("the connections are used", || connections() >= most);
    blocked.iter().for_each(tokio::task::JoinHandle::abort);
}
