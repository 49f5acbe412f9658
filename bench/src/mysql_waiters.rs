//! The load of a thousand claims that wait for one name on a MariaDB while no hold changes.

use std::{
    collections::HashMap,
    sync::Arc,
    time::{Duration, Instant},
};

use leasehold_core::{Answer, Claim, ClaimId, Engine, Env, How, Mode, Name, Notification};
use leasehold_testkit::server::MariadbServer;

use crate::{Failure, comparison::quantile, mysql_free::new_engine};

const CLIENTS: usize = 4;
/// The number of waiters in each client.
const WAITERS: usize = 250;
/// For how long no name changes its holder: first before the measurement, then during the measurement.
const SETTLE_TIME: Duration = Duration::from_secs(8);
const IDLE_TIME: Duration = Duration::from_secs(20);
/// The number of hand-overs that are timed after the measurement.
const HANDOVERS: usize = 20;

pub(crate) fn bench() -> Result<(), Failure> {
    let server = MariadbServer::durable(&["--innodb-buffer-pool-size=128M"]);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let count = |name: &str| status(&server, name);
    runtime.block_on(async {
        let engines: Vec<Arc<dyn Engine>> =
            (0..CLIENTS).map(|_| new_engine(&server).map(|engine| engine as _)).collect::<Result<_, _>>()?;
        let mut holder = new_claim();
        let Answer::Held(mut grant) = engines[0].claim(&holder, How::Create).await? else {
            return Err("a free name was not taken".into());
        };
        let begin = Instant::now();
        let mut waiting = HashMap::new();
        for _ in 0..WAITERS {
            for (client, engine) in engines.iter().enumerate() {
                let claim = new_claim();
                match engine.claim(&claim, How::Create).await? {
                    Answer::Waiting(_) => waiting.insert(claim.id, (client, claim)),
                    other => return Err(format!("it does not wait: {other:?}").into()),
                };
            }
        }
        let time_per_claim = begin.elapsed() / u32::try_from(CLIENTS * WAITERS)?;
        println!("  {} claims are queued; each was queued in {time_per_claim:?}", waiting.len());
        tokio::time::sleep(SETTLE_TIME).await;
        let (before, begin) = (count("Questions")?, Instant::now());
        tokio::time::sleep(IDLE_TIME).await;
        // The query that reads the counter is counted too.
        let statements = count("Questions")? - before - 1;
        let connections = count("Threads_connected")? - 1;
        println!(
            "  idle: {:.1} statements a second, {connections} connections, in {CLIENTS} clients together",
            statements as f64 / begin.elapsed().as_secs_f64()
        );
        let mut times = Vec::new();
        let mut client = 0;
        for _ in 0..HANDOVERS {
            let begin = Instant::now();
            let release = leasehold_core::Release {
                id: holder.id,
                name: holder.name.clone(),
                mode: holder.mode,
                token: Some(grant.token),
                ended: leasehold_core::Previous::Clean,
                min_hold: None,
            };
            engines[client].release(&[release]).await;
            let (id, next) = next_grant(&engines).await;
            times.push(begin.elapsed().as_secs_f64() * 1e3);
            grant = next;
            (client, holder) = waiting.remove(&id).ok_or("a claim was granted that does not wait")?;
        }
        let (median, worst) = (quantile(&mut times, 0.5), quantile(&mut times, 1.0));
        println!("  {HANDOVERS} hand-overs in this queue, one after another: median {median:.1} ms, worst {worst:.1} ms");
        Ok(())
    })
}

/// A figure in the status of the server.
pub(crate) fn status(server: &MariadbServer, name: &str) -> Result<u64, Failure> {
    let row = server.query(&format!("SHOW GLOBAL STATUS LIKE '{name}'"));
    let figure = row.first().and_then(|line| line.split('|').nth(1));
    Ok(figure.ok_or("no figure in the status of the server")?.parse()?)
}

/// The next pushed grant of which any of these clients is notified.
async fn next_grant(engines: &[Arc<dyn Engine>]) -> (ClaimId, leasehold_core::Grant) {
    let mut futures: Vec<_> = engines.iter().map(|engine| engine.notifications()).collect();
    std::future::poll_fn(|context| {
        for (at, notification) in futures.iter_mut().enumerate() {
            while let std::task::Poll::Ready(all) = notification.as_mut().poll(context) {
                *notification = engines[at].notifications();
                for notification in all {
                    if let Notification::Granted { id, grant, .. } = notification {
                        return std::task::Poll::Ready((id, grant));
                    }
                }
            }
        }
        std::task::Poll::Pending
    })
    .await
}

fn new_claim() -> Claim {
    let ttl = Duration::from_secs(600);
    Claim {
        id: ClaimId(Env::system().lineage().get().to_be_bytes()),
        name: Name::new("crowd").expect("it is short and plain"),
        mode: Mode::Exclusive,
        ttl,
        claim_time: Duration::from_secs(60),
        may_queue: true,
        tokens: 1,
        owner: "bench".into(),
        stops_on_term: false,
    }
}
