//! Several tasks in each of several processes contend for one name on etcd.

use std::time::Duration;

use leasehold::Locks;
use leasehold_testkit::server::EtcdServer;

use crate::{Failure, child, comparison::Comparison, pairs::per_second};

/// How long one measurement takes.
const MEASUREMENT_TIME: Duration = Duration::from_secs(1);

/// How often a second all of them together complete a section on the name.
pub(crate) fn bench() -> Result<(), Failure> {
    let server = EtcdServer::durable(&[]);
    let url = format!("etcd://127.0.0.1:{}", server.port());
    let together = |processes: usize, tasks: &str| -> Result<f64, Failure> {
        let children = (0..processes).map(|_| child::start(&["etcd-contended", tasks, &url]));
        let children = children.collect::<Result<Vec<_>, _>>()?;
        let mut sum = 0.0;
        for child in children {
            sum += child::output(child)?.trim().parse::<f64>()?;
        }
        Ok(sum)
    };
    Comparison::new("sections/s")
        .rounds(5)
        .candidate("2 processes, 1 task each", || together(2, "1"))
        .candidate("2 processes, 2 tasks each", || together(2, "2"))
        .candidate("2 processes, 8 tasks each", || together(2, "8"))
        .candidate("8 processes, 1 task each", || together(8, "1"))
        .run()
}

/// One of the contending processes.
pub(crate) fn child(tasks: &str, url: &str) -> Result<(), Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let locks = Locks::connect(url)?;
    let sections = per_second(&runtime, MEASUREMENT_TIME, tasks.parse()?, |_| {
        let request = locks.mutex("line");
        move || {
            let acquire = request.acquire();
            async move { Ok(acquire.await?.release().await?) }
        }
    })?;
    println!("{sections}");
    Ok(())
}
