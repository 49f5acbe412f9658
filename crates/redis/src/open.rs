//! Opens a connection and sends its first requests.

use std::{pin::Pin, sync::Arc, time::Duration};

use futures_util::{StreamExt, future::join4};
use leasehold_core::EngineError;
use redis::{
    AsyncConnectionConfig, ErrorKind, ProtocolVersion, RedisConnectionInfo, RedisError, RedisResult,
    aio::{MultiplexedConnection, PubSub, PubSubSink},
};

use crate::{
    error::classify_connecting,
    identity::{Identity, ServerKind, run_id_and_uptime},
    push_listener::{PushHandler, PushSender},
    server::{CurrentLogin, Server},
    stream::{self, Opened},
};

/// The capacity of the client library's queue of unwritten commands: far more than are ever in flight. Commands leave
/// in the order of the calls only as long as no command must wait for room in the queue.
const MAX_QUEUED_COMMANDS: usize = 65_536;

/// Whether to ask for the server's run id. A client whose user has no right to read it does not ask again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RunIdQuery {
    Ask,
    Skip,
}

/// A new connection. The owner must poll `driver`: when this future completes, the connection is gone.
pub(crate) struct Dialed {
    /// Sends commands.
    pub(crate) mux: MultiplexedConnection,
    /// Writes the commands and reads the answers.
    pub(crate) driver: Pin<Box<dyn Future<Output = ()> + Send>>,
    /// The second connection, for notifications of a server without RESP3; `None` with RESP3. Pings check that this
    /// connection is alive.
    pub(crate) notification: Option<PubSubSink>,
    /// The moment after which the server's certificate is no longer valid, since 1970; `None` without TLS, or if it
    /// cannot be read.
    pub(crate) certificate_end: Option<Duration>,
}

/// Connects and logs in. For a server that knows only the old protocol (RESP2), also makes a second connection, which
/// subscribes to `channel`; on RESP3, [`Dialed::prepare`] subscribes.
pub(crate) async fn open<L: PushHandler>(
    server: &Server,
    channel: &str,
    listener: &Arc<L>,
) -> Result<Dialed, EngineError> {
    let failed = |error: RedisError| classify_connecting(error, server);
    let options = AsyncConnectionConfig::new()
        // Every request has its own deadline in core.
        .set_response_timeout(None)
        .set_pipeline_buffer_size(MAX_QUEUED_COMMANDS);
    let login = server.login.read().await?;
    let resp3 = connection_info(server, &login, ProtocolVersion::RESP3);
    let options_with_pushes = options.clone().set_push_sender(PushSender(Arc::clone(listener)));
    let Opened { bytes, certificate_end } = stream::open(server).await?;
    let connection = MultiplexedConnection::new_with_config(&resp3, bytes, options_with_pushes).await;
    let resp3_error = match connection {
        Ok((mux, driver)) => {
            return Ok(Dialed { mux, driver: Box::pin(driver), notification: None, certificate_end });
        }
        Err(error) => error,
    };
    if !lacks_resp3(&resp3_error) {
        return Err(failed(resp3_error));
    }
    let resp2 = connection_info(server, &login, ProtocolVersion::RESP2);
    let bytes = stream::open(server).await?.bytes;
    let connection = MultiplexedConnection::new_with_config(&resp2, bytes, options).await;
    let (mux, driver) = connection.map_err(failed)?;
    let notification = PubSub::new(&resp2, stream::open(server).await?.bytes).await.map_err(failed)?;
    let (mut notification, mut messages) = notification.split();
    notification.subscribe(channel).await.map_err(failed)?;
    let listener = Arc::clone(listener);
    let receive = async move {
        while let Some(message) = messages.next().await {
            listener.receive(message.get_payload_bytes());
        }
    };
    let driver = async move {
        tokio::select! {
            () = driver => {}
            () = receive => {}
        }
    };
    Ok(Dialed { mux, driver: Box::pin(driver), notification: Some(notification), certificate_end })
}

/// The settings of a connection to the server: protocol, database and login.
fn connection_info(
    server: &Server,
    (user, password): &CurrentLogin,
    protocol: ProtocolVersion,
) -> RedisConnectionInfo {
    let mut info = RedisConnectionInfo::default()
        .set_protocol(protocol)
        .set_db(i64::from(server.db))
        .set_lib_name("leasehold", env!("CARGO_PKG_VERSION"));
    if let Some(user) = user {
        info = info.set_username(user);
    }
    if let Some(password) = password {
        info = info.set_password(password.as_str());
    }
    info
}

/// Whether the error means that the server (older than Redis 6), or a proxy in front of the server, lacks RESP3.
fn lacks_resp3(error: &RedisError) -> bool {
    let is_about_hello =
        error.detail().is_some_and(|detail| detail.contains("HELLO") || detail.contains("unknown command"));
    error.kind() == ErrorKind::RESP3NotSupported
        || error.code() == Some("NOPROTO")
        || (error.code().is_some() && is_about_hello)
}

impl Dialed {
    /// Turns on pushes. Returns the server's identity, and the server's time in microseconds. A server of the wrong
    /// kind is refused before any other answer of it is used.
    pub(crate) async fn prepare(
        &mut self,
        channel: &str,
        server: &Server,
        wanted_kind: ServerKind,
        run_id_query: RunIdQuery,
    ) -> Result<(Identity, u64), EngineError> {
        let (mux, is_resp2) = (&self.mux, self.notification.is_some());
        let answers = join4(
            Identity::ask(mux, is_resp2),
            async {
                if run_id_query == RunIdQuery::Ask { run_id_and_uptime(mux).await } else { Ok((None, None)) }
            },
            async { redis::cmd("TIME").query_async(&mut mux.clone()).await },
            async { if is_resp2 { Ok(()) } else { listen(mux, channel).await } },
        );
        let (identity, run, time, listening) = answers.await;
        let failed = |error| classify_connecting(error, server);
        let mut identity = identity.map_err(failed)?;
        identity.check_kind(wanted_kind, server)?;
        listening.map_err(failed)?;
        (identity.run_id, identity.uptime) = run.map_err(failed)?;
        Ok((identity, micros(time.map_err(failed)?)))
    }
}

/// Turns on pushes: messages on `channel`, and reports of changed keys.
async fn listen(mux: &MultiplexedConnection, channel: &str) -> RedisResult<()> {
    mux.clone().subscribe(channel).await?;
    // If the server refuses tracking, polling finds the end of a foreign lock.
    let mut command = redis::cmd("CLIENT");
    match command.arg(&["TRACKING", "ON", "OPTIN"]).exec_async(&mut mux.clone()).await {
        Err(error) if error.code().is_none() => Err(error),
        _ => Ok(()),
    }
}

/// The answer to `TIME`, in microseconds. The sum is bounded, because a wrong server may send any numbers.
pub(crate) fn micros((seconds, micros): (u64, u64)) -> u64 {
    seconds.saturating_mul(1_000_000).saturating_add(micros)
}

/// Makes another connection to a server; this connection receives no pushes. Returns the connection and its driver,
/// which the caller must poll.
pub(crate) async fn open_without_pushes(
    server: &Server,
) -> Result<(MultiplexedConnection, Pin<Box<dyn Future<Output = ()> + Send>>), EngineError> {
    let info = connection_info(server, &server.login.read().await?, ProtocolVersion::RESP2);
    let options = AsyncConnectionConfig::new().set_response_timeout(None);
    let bytes = stream::open(server).await?.bytes;
    let connection = MultiplexedConnection::new_with_config(&info, bytes, options).await;
    let (mux, driver) = connection.map_err(|error| classify_connecting(error, server))?;
    Ok((mux, Box::pin(driver)))
}

/// Loads a script into a server that does not know it. Each script is sent once to a server, not once on each
/// connection, because the server may log what it receives.
pub(crate) async fn load_script(mux: &mut MultiplexedConnection, script: &str) -> RedisResult<()> {
    redis::cmd("SCRIPT").arg("LOAD").arg(script).exec_async(mux).await
}
