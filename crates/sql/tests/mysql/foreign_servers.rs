//! Tables of other programs on servers that are configured in another way, or behind a proxy.

use std::{
    io::{Read, Write},
    net::{TcpListener, TcpStream},
    sync::Arc,
    thread,
};

use leasehold_core::{Answer, Engine, Env, Fault, How, Inspect, Name, Renewed};
use leasehold_sql::{
    ForeignTableEngine, Layout,
    mysql::{Config, foreign_table_engine},
};
use leasehold_testkit::server::MariadbServer;
use mysql_async::prelude::Queryable;

use crate::{
    foreign::{
        Site, crowd, held, name, released, renewed, steps::both_exclude_each_other_in, table, theirs::Theirs,
        try_claim,
    },
    foreign_tables::engine_at,
    rig::{Rig, is_mysql, until},
};

fn ours(rig: &Rig, layout: Layout) -> Arc<ForeignTableEngine> {
    rig.engine_as("root", table(layout))
}

/// Nodes of a cluster mint tokens in no common order. A connection that was made for a look, which a cluster allows,
/// grants nothing either.
#[tokio::test]
async fn a_node_of_a_cluster_is_refused_also_after_a_look() {
    if is_mysql() {
        return;
    }
    let rig = Rig::of(MariadbServer::durable(&[
        "--wsrep-on=ON",
        "--wsrep-provider=/usr/lib/galera/libgalera_smm.so",
        "--wsrep-cluster-address=gcomm://",
        "--wsrep-node-address=127.0.0.1",
        "--wsrep-provider-options=gmcast.listen_addr=tcp://127.0.0.1:0",
        "--wsrep-sst-method=skip",
        "--binlog-format=ROW",
        "--innodb-autoinc-lock-mode=2",
    ]));
    let layout = Layout::Shedlock;
    rig.query(rig.sql().plain_table(layout));
    let ours = ours(&rig, layout);
    for _ in 0..2 {
        ours.show(&Name::new(name(layout)).unwrap()).await.unwrap();
        let error = ours.claim(&try_claim(layout), How::Create).await.unwrap_err();
        assert!(error.fault == Fault::Misconfigured && error.message.contains("Galera"), "{error:?}");
    }
}

/// Claims that wait for a row leave a connection to renewals, and `max_connections` bounds this engine, too.
#[tokio::test(flavor = "multi_thread")]
async fn a_client_keeps_within_its_connections_and_renews() {
    for (max_connections, most) in [(2, 2), (100, 4)] {
        let rig = Rig::new();
        rig.query(rig.sql().plain_table(Layout::Insert));
        rig.query("CREATE USER locker@'%'; GRANT ALL ON locks.* TO locker@'%'");
        let url = format!("//locker@127.0.0.1:{}/locks", rig.server.port());
        let config = Config::from_url(&url).unwrap().max_connections(max_connections).unwrap();
        let ours = Arc::new(foreign_table_engine(config, table(Layout::Insert), &Env::system()));
        let mut blocker = mysql_async::Conn::from_url(rig.server.url()).await.unwrap();
        blocker.query_drop("BEGIN").await.unwrap();
        blocker.query_drop(crowd::rows()).await.unwrap();
        let connections = || -> usize {
            let query = "SELECT COUNT(*) FROM information_schema.processlist WHERE user = 'locker'";
            rig.query(query)[0].parse().unwrap()
        };
        crowd::a_client_keeps_within_its_connections_and_renews(ours, most, connections).await;
    }
}

/// Starts a proxy that adds the flag `CLIENT_FOUND_ROWS` to each login, and returns its port: behind it a row that was
/// left as it is counts as changed.
fn start_proxy_with_found_rows(server: u16) -> u16 {
    /// The length of the header of a packet.
    const HEADER: usize = 4;
    const CLIENT_FOUND_ROWS: u8 = 2;
    fn copy(mut from: TcpStream, mut to: TcpStream) {
        let _ = std::io::copy(&mut from, &mut to);
        let _ = to.shutdown(std::net::Shutdown::Both);
    }
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    thread::spawn(move || {
        for client in listener.incoming() {
            let mut client = client.unwrap();
            let mut server = TcpStream::connect(("127.0.0.1", server)).unwrap();
            let (to_client, from_server) = (client.try_clone().unwrap(), server.try_clone().unwrap());
            thread::spawn(move || copy(from_server, to_client));
            let mut login = [0; HEADER + 1];
            client.read_exact(&mut login).unwrap();
            login[HEADER] |= CLIENT_FOUND_ROWS;
            server.write_all(&login).unwrap();
            thread::spawn(move || copy(client, server));
        }
    });
    port
}

/// R1: a row that another program commits while a claim waits for it is not taken for the row of the claim, whatever a
/// proxy makes of the number of changed rows.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_row_committed_meanwhile_is_taken_behind_a_proxy_that_counts_found_rows() {
    let (rig, layout) = (Rig::new(), Layout::Insert);
    let port = start_proxy_with_found_rows(rig.server.port());
    // Otherwise the driver connects to the socket of a server on this machine.
    let url = format!("mysql://root@127.0.0.1:{port}/locks?prefer_socket=false");
    let mut proxied = mysql_async::Conn::from_url(url).await.unwrap();
    for create in [rig.sql().plain_table(layout), rig.sql().wide_table(layout)] {
        rig.query("DROP TABLE IF EXISTS method_lock");
        rig.query(create);
        let ours = engine_at(&format!("//root@127.0.0.1:{port}/locks"), table(layout));
        // Opens the connection.
        let before = try_claim(layout);
        let grant = held(&*ours, &before).await;
        released(&*ours, &before, Some(&grant)).await;
        let mut theirs = mysql_async::Conn::from_url(rig.server.url()).await.unwrap();
        theirs.query_drop("BEGIN").await.unwrap();
        let insert = format!("INSERT INTO method_lock (method_name) VALUES ('{}')", name(layout));
        theirs.query_drop(&insert).await.unwrap();
        let commit = async {
            until("the claim waits", || rig.lock_waits() > 0).await;
            theirs.query_drop("COMMIT").await.unwrap();
        };
        let claim = try_claim(layout);
        let (answer, ()) = tokio::join!(ours.claim(&claim, How::Create), commit);
        assert!(matches!(answer, Ok(Answer::Taken(_))), "{answer:?}");
        proxied
            .query_drop(format!("{insert} ON DUPLICATE KEY UPDATE method_name = method_name"))
            .await
            .unwrap();
        assert_eq!(proxied.affected_rows(), 1, "the proxy does not count found rows");
        rig.query("DELETE FROM method_lock");
        held(&*ours, &claim).await;
    }
}

/// In the hour that the zone of the server leaves out, a `TIMESTAMP` column takes no UTC; a `DATETIME` column takes it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_hour_that_the_zone_leaves_out_is_reported_for_timestamps_and_harmless_for_datetimes() {
    let (rig, layout) = (Rig::new(), Layout::Shedlock);
    // A zone whose clocks went forward by a day half a day ago, so that the UTC of now is missing in it.
    for statement in [
        "INSERT INTO mysql.time_zone (Time_zone_id, Use_leap_seconds) VALUES (9001, 'N')",
        "INSERT INTO mysql.time_zone_name VALUES ('Test/Gap', 9001)",
        "INSERT INTO mysql.time_zone_transition_type VALUES (9001, 0, 0, 0, 'OLD'), (9001, 1, 86400, 1, 'NEW')",
        "INSERT INTO mysql.time_zone_transition VALUES (9001, -2000000000, 0), (9001, UNIX_TIMESTAMP() - 43200, 1)",
        "SET GLOBAL time_zone = 'Test/Gap'",
    ] {
        rig.query(statement);
    }
    rig.query(rig.sql().plain_table(layout));
    let error = ours(&rig, layout).claim(&try_claim(layout), How::Create).await.unwrap_err();
    assert!(error.fault == Fault::Misconfigured && error.message.contains("DATETIME columns"), "{error:?}");
    rig.query(rig.sql().coarse);
    both_exclude_each_other_in(&rig, layout).await;
}

/// `TRUNCATE` begins the numbers of the rows again, so a row that another program inserts then is taken for ours: see
/// the page. A number says which row is ours only while rows are deleted.
#[tokio::test]
async fn numbers_tell_rows_apart_unless_the_table_is_truncated() {
    let (rig, layout) = (Rig::new(), Layout::Insert);
    for (empty, is_told_apart) in [("DELETE FROM method_lock", true), ("TRUNCATE method_lock", false)] {
        rig.query(rig.sql().plain_table(layout));
        let ours = ours(&rig, layout);
        let claim = try_claim(layout);
        let grant = held(&*ours, &claim).await;
        rig.query(empty);
        assert!(Theirs { site: &rig, layout, owner: "" }.take(600), "{empty}");
        let answer = renewed(&*ours, &claim, &grant).await;
        assert_eq!(matches!(answer, Renewed::Lost(_)), is_told_apart, "{empty}: {answer:?}");
        let guarantee = ours.guarantee().await.unwrap().to_string();
        assert!(guarantee.contains("TRUNCATE"), "{guarantee}");
    }
}

/// A question mark in the name of a column is not the place of a value.
#[tokio::test]
async fn columns_may_have_any_name() {
    let (rig, layout) = (Rig::new(), Layout::Insert);
    rig.query(
        "CREATE TABLE method_lock (`n?o` INT AUTO_INCREMENT PRIMARY KEY, method_name VARCHAR(64) UNIQUE)",
    );
    let ours = ours(&rig, layout);
    let claim = try_claim(layout);
    let grant = held(&*ours, &claim).await;
    assert!(matches!(renewed(&*ours, &claim, &grant).await, Renewed::Extended { .. }));
    released(&*ours, &claim, Some(&grant)).await;
    assert_eq!(rig.query("SELECT COUNT(*) FROM method_lock"), ["0"]);
}
