//! Opens a connection and asks what must be asked first.

use std::{pin::Pin, sync::Arc};

use futures_util::StreamExt;
use leasehold_core::EngineError;
use redis::{
    AsyncConnectionConfig, ErrorKind, ProtocolVersion, RedisConnectionInfo, RedisError, RedisResult,
    aio::{MultiplexedConnection, PubSub, PubSubSink},
};

use crate::{
    error::sort_connecting,
    news::{Ears, Hear},
    scripts::Script,
    server::Server,
    stream,
};

/// Commands that wait to be written: far more than are ever under way, for order is kept only if none has to wait for room.
const BUFFER: usize = 65_536;

/// A connection that somebody must drive: when the driver ends, it is gone.
pub(crate) struct Dialed {
    pub(crate) mux: MultiplexedConnection,
    pub(crate) driver: Pin<Box<dyn Future<Output = ()> + Send>>,
    /// The other connection, where news cannot come on the same one: for asking whether it is alive.
    pub(crate) news: Option<PubSubSink>,
}

/// Connects, says who we are, and listens to our channel: on the same connection, or, where the server knows the old protocol
/// only, on a second one.
pub(crate) async fn open(server: &Server, channel: &str, ears: &Arc<Ears>) -> Result<Dialed, EngineError> {
    let failed = |error: RedisError| sort_connecting(error, server);
    let options = AsyncConnectionConfig::new()
        // Every request has its own deadline in core.
        .set_response_timeout(None)
        .set_pipeline_buffer_size(BUFFER);
    let password = match &server.login.password {
        Some(password) => Some(password.read().await?),
        None => None,
    };
    let password = password.as_ref().map(|password| password.as_str());
    let new = info(server, password, ProtocolVersion::RESP3);
    let pushed = options.clone().set_push_sender(Hear(Arc::clone(ears)));
    let refused =
        match MultiplexedConnection::new_with_config(&new, stream::open(server).await?, pushed).await {
            Ok((mux, driver)) => return Ok(Dialed { mux, driver: Box::pin(driver), news: None }),
            Err(error) => error,
        };
    if !knows_no_resp3(&refused) {
        return Err(failed(refused));
    }
    let old = info(server, password, ProtocolVersion::RESP2);
    let made = MultiplexedConnection::new_with_config(&old, stream::open(server).await?, options).await;
    let (mux, driver) = made.map_err(failed)?;
    let news = PubSub::new(&old, stream::open(server).await?).await.map_err(failed)?;
    let (mut news, mut messages) = news.split();
    news.subscribe(channel).await.map_err(failed)?;
    let ears = Arc::clone(ears);
    let hear = async move {
        while let Some(message) = messages.next().await {
            ears.hear(message.get_payload_bytes());
        }
    };
    let driver = async move {
        tokio::select! {
            () = driver => {}
            () = hear => {}
        }
    };
    Ok(Dialed { mux, driver: Box::pin(driver), news: Some(news) })
}

fn info(server: &Server, password: Option<&str>, protocol: ProtocolVersion) -> RedisConnectionInfo {
    let mut info = RedisConnectionInfo::default()
        .set_protocol(protocol)
        .set_db(i64::from(server.db))
        .set_lib_name("leasehold", env!("CARGO_PKG_VERSION"));
    if let Some(user) = &server.login.user {
        info = info.set_username(user);
    }
    if let Some(password) = password {
        info = info.set_password(password);
    }
    info
}

/// Older than Redis 6, or a proxy in front of it.
fn knows_no_resp3(error: &RedisError) -> bool {
    let about_hello =
        error.detail().is_some_and(|detail| detail.contains("HELLO") || detail.contains("unknown command"));
    error.kind() == ErrorKind::RESP3NotSupported
        || error.code() == Some("NOPROTO")
        || (error.code().is_some() && about_hello)
}

impl Dialed {
    /// Asks for what the server pushes, and for its time, in microseconds.
    pub(crate) async fn prepare(&mut self, channel: &str) -> RedisResult<u64> {
        let mux = &mut self.mux;
        if self.news.is_none() {
            mux.subscribe(channel).await?;
            // Without it the end of a foreign lock is found by asking for it.
            let tracking = redis::cmd("CLIENT").arg(&["TRACKING", "ON", "OPTIN"]).exec_async(mux).await;
            if let Err(error) = tracking
                && error.code().is_none()
            {
                return Err(error);
            }
        }
        Ok(micros(redis::cmd("TIME").query_async(mux).await?))
    }
}

/// The answer to `TIME`, in microseconds. A server may send any numbers.
pub(crate) fn micros((seconds, micros): (u64, u64)) -> u64 {
    seconds.saturating_mul(1_000_000).saturating_add(micros)
}

/// Teaches a server a script that it does not know: each is sent once to a server, not once on each connection, for it may write
/// down what it is sent.
pub(crate) async fn teach(mux: &mut MultiplexedConnection, script: Script) -> RedisResult<()> {
    redis::cmd("SCRIPT").arg("LOAD").arg(script.text()).exec_async(mux).await
}
