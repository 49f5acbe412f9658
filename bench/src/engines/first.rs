//! The first lock of a process, with and without a warm-up, and the answer of a request while the server is away.

use std::time::{Duration, Instant};

use leasehold::{Connect, Error, Locks, WhenUnreachable};
use leasehold_testkit::server::Proxy;
use tokio::runtime::Runtime;

use super::{
    Extent,
    report::Report,
    rig::{Rig, Server},
};
use crate::{
    Failure,
    comparison::{in_turns, quantile, three_digits},
};

const TTL: Duration = Duration::from_secs(30);
/// How often a request is sent while the server is away.
const REFUSALS: usize = 1_000;

pub(crate) fn measure(rigs: &[Rig], extent: &Extent, report: &mut Report) -> Result<(), Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    for (warm, what) in [(true, "after `warm`"), (false, "without `warm`")] {
        println!("  the first pair of a client {what}, beside its second");
        let ratios = beside_second(rigs, extent, &runtime, warm)?;
        report.row(
            &format!("first pair of a client {what}: time beside that of its second"),
            ratios.iter().map(|&ratio| three_digits(ratio)).collect(),
        );
    }
    println!("  acquire while the server is away, with when_unreachable=fail");
    let mut cells = Vec::new();
    for rig in rigs {
        let cell = match rig.server {
            Server::File(_) | Server::Sqlite(_) => "no server".to_owned(),
            _ => three_digits(refusal_time(rig, &runtime)?),
        };
        println!("  {:44} {cell}", rig.name);
        cells.push(cell);
    }
    report.row("acquire while the server is away, `when_unreachable=fail`, p99: us", cells);
    Ok(())
}

/// For each rig, the median time of the first pair of a new client, divided by the median time of its second.
fn beside_second(rigs: &[Rig], extent: &Extent, runtime: &Runtime, warm: bool) -> Result<Vec<f64>, Failure> {
    let mut times = vec![[Vec::new(), Vec::new()]; rigs.len()];
    in_turns(rigs.len(), extent.short_rounds * 2, extent.part, |index| {
        rigs[index].prepare(runtime)?;
        let locks = rigs[index].locks()?;
        let pairs: Result<[f64; 2], Failure> = runtime.block_on(async {
            if warm {
                locks.warm(TTL).await?;
            }
            Ok([pair(&locks, "first").await?, pair(&locks, "second").await?])
        });
        let [first, second] = pairs?;
        times[index][0].push(first);
        times[index][1].push(second);
        Ok(())
    })?;
    let ratio = |[first, second]: &mut [Vec<f64>; 2]| quantile(first, 0.5) / quantile(second, 0.5);
    let ratios: Vec<f64> = times.iter_mut().map(ratio).collect();
    for (rig, ratio) in rigs.iter().zip(&ratios) {
        println!("  {:44} {}", rig.name, three_digits(*ratio));
    }
    Ok(ratios)
}

/// How many seconds the acquire and the release of a free name take.
async fn pair(locks: &Locks, name: &str) -> Result<f64, Error> {
    let begin = Instant::now();
    locks.mutex(name).ttl(TTL).acquire().await?.release().await?;
    Ok(begin.elapsed().as_secs_f64())
}

/// The 99th percentile of the times, in microseconds, until a request fails after the connections to the server were
/// cut.
fn refusal_time(rig: &Rig, runtime: &Runtime) -> Result<f64, Failure> {
    let proxies: Vec<Proxy> = rig.ports().into_iter().map(Proxy::start).collect();
    let ports: Vec<u16> = proxies.iter().map(Proxy::port).collect();
    let locks = Connect::default().when_unreachable(WhenUnreachable::Fail).connect(&rig.url_at(&ports))?;
    runtime.block_on(async {
        pair(&locks, "reached").await?;
        proxies.iter().for_each(Proxy::block);
        // The first request finds out that the server is away.
        while locks.mutex("lost").acquire().await.is_ok() {}
        let mut times = Vec::new();
        for _ in 0..REFUSALS {
            let begin = Instant::now();
            match locks.mutex("refused").acquire().await {
                Err(error) if error.is_unreachable() => times.push(begin.elapsed().as_secs_f64() * 1e6),
                other => return Err(format!("{}: not refused: {other:?}", rig.name).into()),
            }
        }
        Ok(quantile(&mut times, 0.99))
    })
}
