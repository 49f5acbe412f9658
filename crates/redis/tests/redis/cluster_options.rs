//! Options of the URL, and the fence, on a Redis Cluster.

use std::{
    io::{BufRead, BufReader, Write},
    net::TcpStream,
    time::Duration,
};

use leasehold_core::Fault;
use leasehold_redis::{Fence, Guarded, Reply, Wake};

use crate::{
    cluster_rig::ClusterRig,
    rig::{PATIENCE, acquire},
};

/// The wake-up keys of these programs are in other slots than the locks.
#[test]
fn wake_options_unsupported_by_a_cluster_are_refused() {
    let rig = ClusterRig::with(1, 0, &[]);
    for (wake, program) in [(Wake::PythonRedisLock, "python-redis-lock"), (Wake::Walrus, "walrus")] {
        let error = rig.config.clone().wake(wake).unwrap_err();
        assert!(error.is_misconfigured() && error.to_string().contains(program), "{error}");
    }
}

/// A published message reaches all nodes, not only the node of the lock.
#[test]
fn a_release_wakes_spring_at_every_node() {
    let mut rig = ClusterRig::with(3, 0, &[]);
    rig.config = rig.config.clone().prefix("registry:").unwrap().wake(Wake::Spring).unwrap();
    let port = rig.cluster().ports()[0];
    let mut listener = TcpStream::connect(("127.0.0.1", port)).unwrap();
    listener.set_read_timeout(Some(PATIENCE)).unwrap();
    listener.write_all(b"PSUBSCRIBE registry-channel:*\r\n").unwrap();
    rig.until("it listens", || rig.cluster().command(0, &["PUBSUB", "NUMPAT"]) == ["1"]);
    let locks = rig.locks();
    let mut lines = BufReader::new(listener).lines().map(Result::unwrap);
    for name in ["a", "b", "c", "d", "e"] {
        acquire(&locks, name).release_blocking().unwrap();
        lines.find(|line| line == "pmessage").unwrap();
        let message: Vec<_> = lines.by_ref().filter(|line| !line.starts_with('$')).take(3).collect();
        let key = format!("registry:{name}");
        assert_eq!(message, ["registry-channel:*".to_owned(), format!("registry-channel:{key}"), key]);
    }
}

#[test]
fn a_fence_moves_with_the_slot_of_its_data() {
    let rig = ClusterRig::with(2, 0, &[]);
    let fence = Fence::new(rig.engine(), "{stock}");
    let write = |token: u64, key: &str| rig.run(fence.write(token, &[&["INCR", key]]));
    assert_eq!(write(7, "{stock}:42").unwrap(), Guarded::Done(vec![Reply::Number(1)]));
    let slot = rig.cluster().slot("{stock}:42");
    let from = rig.cluster().owner(slot);
    rig.cluster().migrate_slot(slot, 1 - from).unwrap();
    assert_eq!(write(8, "{stock}:42").unwrap(), Guarded::Done(vec![Reply::Number(2)]));
    assert_eq!(write(7, "{stock}:42").unwrap(), Guarded::Overtaken(8));
    // A fence's write to a key on another node fails, and the error says what to do.
    let is_elsewhere = |key: &String| {
        let cluster = rig.cluster();
        cluster.owner(cluster.slot(key)) == from
    };
    let elsewhere = (0..100).map(|number| format!("n{number}")).find(is_elsewhere).unwrap();
    let error = write(9, &elsewhere).unwrap_err();
    assert_eq!(error.fault, Fault::Misconfigured, "{error}");
    assert!(error.message.contains("the same hash tag"), "{error}");
    assert_eq!(
        write(7, "{stock}:42").unwrap(),
        Guarded::Overtaken(9),
        "the fence has seen token 9, although nothing was written"
    );
}

/// The engine accepts both options. Clients with different prefixes can hold the same name, because the prefix is a
/// part of every key of a name.
#[test]
fn a_prefix_and_a_gap_work_as_on_one_server() {
    let mut rig = ClusterRig::with(2, 0, &[]);
    rig.config = rig.config.clone().prefix("team-a:").unwrap().gap(Duration::ZERO).connect_timeout(PATIENCE);
    let (locks, plain) = (rig.locks(), {
        rig.config = rig.config.clone().prefix("lock:").unwrap();
        rig.locks()
    });
    let guards = [acquire(&locks, "a"), acquire(&plain, "a")];
    let listed = rig.run(locks.list("")).unwrap();
    assert_eq!(listed.iter().map(|view| view.name.as_str()).collect::<Vec<_>>(), ["a"]);
    for guard in guards {
        guard.release_blocking().unwrap();
    }
}
