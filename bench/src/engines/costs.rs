//! What a pair (an acquire and its release) of a free name costs the server: requests, as the server counts them, and
//! bytes, as a proxy between client and server counts them.

use std::{thread::sleep, time::Duration};

use leasehold::Locks;
use leasehold_testkit::server::Proxy;
use tokio::runtime::Runtime;

use super::{
    Extent,
    report::Report,
    rig::{Rig, Server},
};
use crate::{Failure, comparison::three_digits};

/// How many pairs are acquired before the count begins: connections, sessions, scripts and statements are made by then.
const WARM_UP: u32 = 50;
/// How long the client is at rest before each reading, so that no late release is counted.
const REST: Duration = Duration::from_millis(300);
const NO_SERVER: &str = "no server";

pub(crate) fn measure(rigs: &[Rig], extent: &Extent, report: &mut Report) -> Result<(), Failure> {
    println!("  requests and bytes of a pair");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let (mut requests, mut bytes) = (Vec::new(), Vec::new());
    for rig in rigs {
        let cells = match rig.server {
            Server::File(_) | Server::Sqlite(_) => [NO_SERVER.to_owned(), NO_SERVER.to_owned()],
            _ => of_one(rig, &runtime, extent.counted_pairs)?,
        };
        println!("  {:44} requests: {}; bytes: {}", rig.name, cells[0], cells[1]);
        let [request_cell, byte_cell] = cells;
        requests.push(request_cell);
        bytes.push(byte_cell);
    }
    report.row("requests at the server for a pair", requests);
    report.row("bytes for a pair: to the server + from it", bytes);
    Ok(())
}

fn of_one(rig: &Rig, runtime: &Runtime, pairs: u32) -> Result<[String; 2], Failure> {
    let proxies: Vec<Proxy> = rig.ports().into_iter().map(Proxy::start).collect();
    let ports: Vec<u16> = proxies.iter().map(Proxy::port).collect();
    let locks = Locks::connect(&rig.url_at(&ports))?;
    let read = || -> Result<[u64; 4], Failure> {
        sleep(REST);
        let bytes = proxies.iter().map(Proxy::bytes);
        let (sent, received) = bytes.fold((0, 0), |sum, bytes| (sum.0 + bytes.0, sum.1 + bytes.1));
        let (requests, of_scripts) = rig.requests()?.ok_or(NO_SERVER)?;
        Ok([sent, received, requests, of_scripts])
    };
    runtime.block_on(acquire_and_release(&locks, WARM_UP))?;
    let before = read()?;
    runtime.block_on(acquire_and_release(&locks, pairs))?;
    let after = read()?;
    let of_pair = |index: usize| (after[index] - before[index]) as f64 / f64::from(pairs);
    let requests = match of_pair(3) {
        0.0 => format!("{:.1}", of_pair(2)),
        of_scripts => format!("{:.1} (their scripts run {of_scripts:.1} commands)", of_pair(2)),
    };
    Ok([requests, format!("{} + {}", three_digits(of_pair(0)), three_digits(of_pair(1)))])
}

/// Acquires and releases one name again and again.
async fn acquire_and_release(locks: &Locks, pairs: u32) -> Result<(), Failure> {
    let request = locks.mutex("counted");
    for _ in 0..pairs {
        request.acquire().await?.release().await?;
    }
    Ok(())
}
