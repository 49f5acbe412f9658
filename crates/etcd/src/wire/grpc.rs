//! Calls and streams over one connection.

use std::sync::{Arc, PoisonError, RwLock};

use super::{
    Authenticate, AuthenticateResponse, DeleteRange, DeleteRangeResponse, Grant, GrantResponse, HashKv,
    HashKvResponse, Http, KeepAlive, KeepAliveResponse, Members, MembersResponse, Range, RangeResponse,
    Revoke, RevokeResponse, Status as StatusRequest, StatusResponse, TimeToLive, TimeToLiveResponse, Txn,
    TxnResponse, Watch, WatchResponse,
    bounded::{Answer, Bounded},
};
use futures_util::Stream;
use leasehold_core::LONGEST_REPLY;
use tonic::{
    IntoStreamingRequest, Request, Status, Streaming,
    client::Grpc as Client,
    codegen::http::{Uri, uri::PathAndQuery},
    metadata::{Ascii, MetadataMap, MetadataValue},
};

/// A request with one reply, and its path.
pub(crate) trait UnaryRequest: prost::Message + Default + Clone + 'static {
    type Answer: Answer;
    const PATH: &'static str;

    /// The revision of the server's data in a reply, if replies of this kind have one order.
    fn revision(_: &Self::Answer) -> Option<i64> {
        None
    }
}

/// Declares requests with one reply, each with its path.
macro_rules! unary {
    ($($request:ty => $answer:ty: $path:literal,)*) => {
        $(impl UnaryRequest for $request {
            type Answer = $answer;
            const PATH: &'static str = concat!("/etcdserverpb.", $path);
        })*
    };
}

unary! {
    Grant => GrantResponse: "Lease/LeaseGrant",
    Revoke => RevokeResponse: "Lease/LeaseRevoke",
    TimeToLive => TimeToLiveResponse: "Lease/LeaseTimeToLive",
    Authenticate => AuthenticateResponse: "Auth/Authenticate",
    StatusRequest => StatusResponse: "Maintenance/Status",
    Members => MembersResponse: "Cluster/MemberList",
    HashKv => HashKvResponse: "Maintenance/HashKV",
}

impl UnaryRequest for Range {
    type Answer = RangeResponse;
    const PATH: &'static str = "/etcdserverpb.KV/Range";

    fn revision(answer: &RangeResponse) -> Option<i64> {
        answer.header.as_ref().map(|header| header.revision)
    }
}

impl UnaryRequest for DeleteRange {
    type Answer = DeleteRangeResponse;
    const PATH: &'static str = "/etcdserverpb.KV/DeleteRange";

    fn revision(answer: &DeleteRangeResponse) -> Option<i64> {
        answer.header.as_ref().map(|header| header.revision)
    }
}

impl UnaryRequest for Txn {
    type Answer = TxnResponse;
    const PATH: &'static str = "/etcdserverpb.KV/Txn";

    fn revision(answer: &TxnResponse) -> Option<i64> {
        Some(answer.revision())
    }
}

/// The paths of the two streams.
const WATCH: &str = "/etcdserverpb.Watch/Watch";
const KEEP_ALIVE: &str = "/etcdserverpb.Lease/LeaseKeepAlive";

/// One connection. Clones share it.
#[derive(Clone)]
pub(crate) struct Grpc {
    client: Client<Http>,
    /// The token that the server gave at the login.
    token: Arc<RwLock<Option<MetadataValue<Ascii>>>>,
}

impl Grpc {
    pub(crate) fn new(http: Http) -> Self {
        // HTTP/2 requires a host in every request; the server ignores it.
        let client = Client::with_origin(http, Uri::from_static("http://etcd"));
        let client = client.max_decoding_message_size(LONGEST_REPLY);
        Self { client, token: Arc::default() }
    }

    /// Sends this login token with all further requests.
    pub(crate) fn set_token(&self, token: &str) -> Result<(), Status> {
        let token = MetadataValue::try_from(token).map_err(|_| Status::internal("an unreadable token"))?;
        *self.token.write().unwrap_or_else(PoisonError::into_inner) = Some(token);
        Ok(())
    }

    /// Sends a request and waits for its reply.
    pub(crate) async fn call<R: UnaryRequest>(&self, request: R) -> Result<R::Answer, Status> {
        let mut client = self.ready().await?;
        let mut request = Request::new(request);
        self.add_metadata(request.metadata_mut());
        let codec = Bounded::<R, R::Answer>::new();
        Ok(client.unary(request, PathAndQuery::from_static(R::PATH), codec).await?.into_inner())
    }

    /// Opens the stream of watches.
    pub(crate) async fn watch(
        &self,
        requests: impl Stream<Item = Watch> + Send + 'static,
    ) -> Result<Streaming<WatchResponse>, Status> {
        self.stream(requests, WATCH).await
    }

    /// Opens the stream of keep-alives.
    pub(crate) async fn keep_alive(
        &self,
        leases: impl Stream<Item = KeepAlive> + Send + 'static,
    ) -> Result<Streaming<KeepAliveResponse>, Status> {
        self.stream(leases, KEEP_ALIVE).await
    }

    async fn stream<Q, A>(
        &self,
        requests: impl Stream<Item = Q> + Send + 'static,
        path: &'static str,
    ) -> Result<Streaming<A>, Status>
    where
        Q: prost::Message + 'static,
        A: Answer,
    {
        let mut client = self.ready().await?;
        let mut request = requests.into_streaming_request();
        self.add_metadata(request.metadata_mut());
        let codec = Bounded::<Q, A>::new();
        Ok(client.streaming(request, PathAndQuery::from_static(path), codec).await?.into_inner())
    }

    /// A client whose connection can accept a request.
    async fn ready(&self) -> Result<Client<Http>, Status> {
        let mut client = self.client.clone();
        client.ready().await?;
        Ok(client)
    }

    /// Adds the login token, and the request to fail at once if the member has no leader.
    fn add_metadata(&self, metadata: &mut MetadataMap) {
        metadata.insert("hasleader", MetadataValue::from_static("true"));
        if let Some(token) = &*self.token.read().unwrap_or_else(PoisonError::into_inner) {
            metadata.insert("token", token.clone());
        }
    }
}
