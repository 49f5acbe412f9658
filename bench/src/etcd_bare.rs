//! A bare client of etcd. It sends the requests of a program that locks only with the server's own operations.

use leasehold_testkit::server::etcd_metrics;
use tokio_stream::StreamExt;
use tonic::{
    IntoStreamingRequest, Request, Streaming, client::Grpc, codegen::http::uri::PathAndQuery,
    transport::Channel,
};
use tonic_prost::ProstCodec;

use crate::{
    Failure,
    etcd_messages::{
        CompactionRequest, Compare, DeleteRange, EmptyResponse, KeyRequest, LeaseGrantRequest,
        LeaseGrantResponse, LockRequest, LockResponse, Put, RESULT_LESS, RangeResponse, RequestOp,
        TARGET_MOD, TARGET_VALUE, Txn, TxnResponse, Watch, WatchResponse,
    },
};

/// The ttl of the bare client's lease. It is longer than any bench.
const LEASE_SECONDS: i64 = 3600;
/// The number of steps in one transaction. The server accepts up to 128.
const STEPS: usize = 100;

/// One connection, and one lease for all locks of the client.
#[derive(Clone)]
pub(crate) struct Bare {
    grpc: Grpc<Channel>,
    lease: i64,
}

impl Bare {
    pub(crate) async fn connect(port: u16) -> Result<Self, Failure> {
        let address = format!("http://127.0.0.1:{port}");
        let channel = Channel::from_shared(address)?.tcp_nodelay(true).connect().await?;
        let mut bare = Self { grpc: Grpc::new(channel), lease: 0 };
        let granted: LeaseGrantResponse =
            bare.call("/etcdserverpb.Lease/LeaseGrant", LeaseGrantRequest { ttl: LEASE_SECONDS }).await?;
        bare.lease = granted.id;
        Ok(bare)
    }

    /// Creates a key on the client's lease, and then deletes the key. These are two transactions. The key must not
    /// exist before.
    pub(crate) async fn pair(mut self, key: &str) -> Result<(), Failure> {
        self.create(key).await?;
        self.delete(key).await
    }

    pub(crate) async fn create(&mut self, key: &str) -> Result<(), Failure> {
        let key = key.as_bytes().to_vec();
        // The condition is true if the key does not exist: then its revision of creation is 0.
        let absent = Compare::created_at(key.clone(), 0);
        let put = Put { key, value: b"owner".to_vec(), lease: self.lease };
        self.commit(Txn { compare: vec![absent], success: vec![RequestOp::put(put)], failure: Vec::new() })
            .await
    }

    pub(crate) async fn delete(&mut self, key: &str) -> Result<(), Failure> {
        let delete = DeleteRange { key: key.as_bytes().to_vec(), ..DeleteRange::default() };
        self.commit(Txn {
            compare: Vec::new(),
            success: vec![RequestOp::delete(delete)],
            failure: Vec::new(),
        })
        .await
    }

    async fn commit(&mut self, txn: Txn) -> Result<(), Failure> {
        let response: TxnResponse = self.call("/etcdserverpb.KV/Txn", txn).await?;
        if response.succeeded { Ok(()) } else { Err("a transaction did not succeed".into()) }
    }

    /// Sends the transactions that leasehold sends for an exclusive claim on a free name and for its release.
    pub(crate) async fn same_pair(mut self, name: &str) -> Result<(), Failure> {
        let bytes = |text: String| text.into_bytes();
        let dir = format!("/locks/{name}");
        let key = bytes(format!("{dir}/00000000000000000000000000000001"));
        let epoch = bytes(format!("leasehold//locks/lease/{:x}", self.lease));
        let epoch_unchanged =
            Compare { target: TARGET_MOD, key: epoch, mod_revision: Some(0), ..Compare::default() };
        let no_bare_key = Compare::created_at(bytes(dir.clone()), 0);
        let no_keys = Compare {
            range_end: bytes(format!("{dir}0")),
            ..Compare::created_at(bytes(format!("{dir}/")), 0)
        };
        let put = Put { key: key.clone(), value: b"a 1 30000 user@host:12345".to_vec(), lease: self.lease };
        self.commit(Txn {
            compare: vec![epoch_unchanged, no_bare_key, no_keys],
            success: vec![RequestOp::put(put)],
            failure: Vec::new(),
        })
        .await?;
        let no_min_hold = Compare {
            result: RESULT_LESS,
            target: TARGET_VALUE,
            key: key.clone(),
            value: Some(b"k".to_vec()),
            ..Compare::default()
        };
        let delete = DeleteRange { key, prev_kv: true, ..DeleteRange::default() };
        self.commit(Txn {
            compare: vec![no_min_hold],
            success: vec![RequestOp::delete(delete)],
            failure: Vec::new(),
        })
        .await
    }

    /// Locks and unlocks a name with the server's own lock service.
    pub(crate) async fn lock_pair(mut self, name: &str) -> Result<(), Failure> {
        let lock = LockRequest { name: name.as_bytes().to_vec(), lease: self.lease };
        let locked: LockResponse = self.call("/v3lockpb.Lock/Lock", lock).await?;
        let _: EmptyResponse = self.call("/v3lockpb.Lock/Unlock", KeyRequest { key: locked.key }).await?;
        Ok(())
    }

    /// Makes the server discard deleted keys.
    pub(crate) async fn compact(&mut self) -> Result<(), Failure> {
        let found: RangeResponse =
            self.call("/etcdserverpb.KV/Range", KeyRequest { key: b"none".to_vec() }).await?;
        let revision = found.header.map_or(0, |header| header.revision);
        let compact = CompactionRequest { revision, physical: true };
        let _: EmptyResponse = self.call("/etcdserverpb.KV/Compact", compact).await?;
        Ok(())
    }

    /// Creates `keys` keys in a directory, and then deletes them.
    pub(crate) async fn create_and_delete(&mut self, dir: &str, keys: usize) -> Result<(), Failure> {
        for first in (0..keys).step_by(STEPS) {
            let key = |number| format!("{dir}/{number:032x}").into_bytes();
            let put = |number| RequestOp::put(Put { key: key(number), ..Put::default() });
            let puts = (first..keys.min(first + STEPS)).map(put).collect();
            self.commit(Txn { compare: Vec::new(), success: puts, failure: Vec::new() }).await?;
        }
        let (key, range_end) = (format!("{dir}/").into_bytes(), format!("{dir}0").into_bytes());
        let delete = RequestOp::delete(DeleteRange { key, range_end, prev_kv: false });
        self.commit(Txn { compare: Vec::new(), success: vec![delete], failure: Vec::new() }).await
    }

    /// Whether a key exists.
    pub(crate) async fn is_there(&mut self, key: &str) -> Result<bool, Failure> {
        let found: RangeResponse =
            self.call("/etcdserverpb.KV/Range", KeyRequest { key: key.as_bytes().to_vec() }).await?;
        Ok(found.count > 0)
    }

    /// Watches a key from now on. The first answer says that the watch has begun.
    pub(crate) async fn watch(&mut self, key: &str) -> Result<Streaming<WatchResponse>, Failure> {
        let order = Watch { create: Some(KeyRequest { key: key.as_bytes().to_vec() }) };
        // The server ends the answer stream when the request stream ends, so the request stream stays open.
        let orders = tokio_stream::once(order).chain(tokio_stream::pending());
        self.grpc.ready().await?;
        let path = PathAndQuery::from_static("/etcdserverpb.Watch/Watch");
        let codec = ProstCodec::<Watch, WatchResponse>::default();
        Ok(self.grpc.streaming(orders.into_streaming_request(), path, codec).await?.into_inner())
    }

    async fn call<Q, A>(&mut self, path: &'static str, request: Q) -> Result<A, Failure>
    where
        Q: prost::Message + 'static,
        A: prost::Message + Default + 'static,
    {
        self.grpc.ready().await?;
        let codec = ProstCodec::<Q, A>::default();
        Ok(self.grpc.unary(Request::new(request), PathAndQuery::from_static(path), codec).await?.into_inner())
    }
}

/// The number of messages of this method that the server has read.
pub(crate) fn messages(port: u16, method: &str) -> Result<u64, Failure> {
    counted(port, "grpc_server_msg_received_total", &label(method))
}

/// The number of messages of all methods that the server has read.
pub(crate) fn all_messages(port: u16) -> Result<u64, Failure> {
    counted(port, "grpc_server_msg_received_total", "")
}

/// The number of calls of this method that are in progress.
pub(crate) fn under_way(port: u16, method: &str) -> Result<u64, Failure> {
    let started = counted(port, "grpc_server_started_total", &label(method))?;
    Ok(started - counted(port, "grpc_server_handled_total", &label(method))?)
}

fn label(method: &str) -> String {
    format!("grpc_method=\"{method}\"")
}

/// The sum of a figure over the methods whose label contains `label`.
fn counted(port: u16, figure: &str, label: &str) -> Result<u64, Failure> {
    let text = etcd_metrics(port)?;
    let lines = text.lines().filter(|line| line.starts_with(figure) && line.contains(label));
    lines.filter_map(|line| line.rsplit(' ').next()).map(|count| Ok(count.parse::<f64>()? as u64)).sum()
}
