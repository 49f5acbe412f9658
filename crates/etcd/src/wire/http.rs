//! The HTTP/2 layer below the gRPC calls. tonic's channel would put a queue, two tasks and three writes between a
//! request and its connection. Here a request and its body leave in one write, and the reply wakes the waiting task
//! directly.

use std::{
    io,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use futures_util::FutureExt;
use h2::{RecvStream, SendStream, client::SendRequest};
use http_body::Frame;
use tonic::{
    Status,
    body::Body,
    codegen::{BoxFuture, Bytes, Service, http},
};

use crate::{runtime, stream};

/// The most bytes of one reply that the server may send before they are read.
const STREAM_WINDOW: u32 = 1 << 20;
/// The most bytes of all replies together that the server may send before they are read.
const CONNECTION_WINDOW: u32 = 4 << 20;

/// A connection, shared by its clones. It closes when the last clone and the last reply are dropped.
#[derive(Clone)]
pub(crate) struct Http(SendRequest<Bytes>);

impl Http {
    pub(crate) async fn connect(bytes: impl stream::ByteStream) -> Result<Self, Status> {
        let mut builder = h2::client::Builder::new();
        builder.initial_window_size(STREAM_WINDOW).initial_connection_window_size(CONNECTION_WINDOW);
        let (requests, connection) =
            builder.enable_push(false).handshake(bytes).await.map_err(|error| broken(&error))?;
        runtime::spawn(async move {
            if let Err(error) = connection.await {
                tracing::debug!(%error, "a connection broke");
            }
        });
        Ok(Self(requests))
    }
}

impl Service<http::Request<Body>> for Http {
    type Response = http::Response<HttpResponse>;
    type Error = Status;
    type Future = BoxFuture<Self::Response, Status>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Status>> {
        self.0.poll_ready(cx).map_err(|error| broken(&error))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        let mut requests = self.0.clone();
        Box::pin(async move {
            let (head, body) = request.into_parts();
            let head = http::Request::from_parts(head, ());
            let (answer, stream) = requests.send_request(head, false).map_err(|error| broken(&error))?;
            let mut sending = Box::pin(send_body(body, stream));
            // A single message is sent at once; the later messages of a stream are sent by a task.
            match sending.as_mut().now_or_never() {
                Some(sent) => sent?,
                None => runtime::spawn(sending.map(drop)),
            }
            let answer = answer.await.map_err(|error| broken(&error))?;
            Ok(answer.map(|stream| HttpResponse { stream, ended: false }))
        })
    }
}

/// Sends a body to its end.
async fn send_body(mut body: Body, mut stream: SendStream<Bytes>) -> Result<(), Status> {
    let mut next = next_data(&mut body).await?;
    while let Some(data) = next {
        // `following` is `None` if the next data is not ready yet, and `Some(None)` at the end of the body. At the end,
        // this frame is marked as the last one, so that the server need not read an empty frame.
        let (following, is_last) = match next_data(&mut body).now_or_never() {
            Some(following) => {
                let following = following?;
                let is_last = following.is_none();
                (Some(following), is_last)
            }
            None => (None, false),
        };
        stream.send_data(data, is_last).map_err(|error| broken(&error))?;
        next = match following {
            Some(None) => return Ok(()),
            Some(following) => following,
            None => next_data(&mut body).await?,
        };
    }
    stream.send_data(Bytes::new(), true).map_err(|error| broken(&error))
}

/// The next data of a body; `None` at its end.
async fn next_data(body: &mut Body) -> Result<Option<Bytes>, Status> {
    let frame = std::future::poll_fn(|cx| http_body::Body::poll_frame(Pin::new(&mut *body), cx)).await;
    Ok(frame.transpose()?.and_then(|frame| frame.into_data().ok()))
}

/// The reply to one request.
pub(crate) struct HttpResponse {
    stream: RecvStream,
    /// The trailers were read: nothing follows.
    ended: bool,
}

impl http_body::Body for HttpResponse {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        if self.ended {
            return Poll::Ready(None);
        }
        if let Some(data) = ready!(self.stream.poll_data(cx)) {
            let data = data.and_then(|data| {
                self.stream.flow_control().release_capacity(data.len())?;
                Ok(Frame::data(data))
            });
            return Poll::Ready(Some(data.map_err(|error| broken(&error))));
        }
        let trailers = ready!(self.stream.poll_trailers(cx)).map_err(|error| broken(&error));
        self.ended = true;
        Poll::Ready(trailers.map(|trailers| trailers.map(Frame::trailers)).transpose())
    }
}

/// The error of a broken connection: whether the request was applied is unknown.
fn broken(error: &h2::Error) -> Status {
    let mut status = Status::unavailable(format!("the connection broke: {error}"));
    if let Some(cause) = error.get_io() {
        status.set_source(Arc::new(io::Error::new(cause.kind(), cause.to_string())));
    }
    status
}
