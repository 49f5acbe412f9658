//! Decodes replies within a bound on their size in memory. A field of two bytes may become a value of a hundred bytes,
//! so a reply is weighed before it is decoded.

use std::marker::PhantomData;

use leasehold_core::{Room, TooLong};
use prost::bytes::Buf;
use tonic::{
    Status,
    codec::{Codec, DecodeBuf, Decoder},
};
use tonic_prost::ProstEncoder;

/// The memory that a message or a text in a list takes beside its bytes.
const PART: u64 = 128;

/// The fields of a message that are lists, or that contain lists.
pub(crate) struct Shape(pub(crate) &'static [(u64, &'static Shape)]);

/// A message without lists, or a text.
pub(crate) const PLAIN: Shape = Shape(&[]);

/// A reply of the server.
pub(crate) trait Answer: prost::Message + Default + 'static {
    const SHAPE: Shape = PLAIN;
}

/// Deducts the memory that the lists of a message take, beside their bytes, from the bound. Returns `Ok` also for bytes
/// that are no message: decoding them fails, no later than at the byte where this stops.
fn weigh(mut bytes: &[u8], shape: &Shape, room: &mut Room) -> Result<(), TooLong> {
    while let Some((tag, rest)) = varint(bytes) {
        let rest = match tag & 7 {
            0 => varint(rest).map(|(_, rest)| rest),
            1 => rest.get(8..),
            2 => {
                let Some((part, rest)) = delimited(rest) else { return Ok(()) };
                if let Some((_, shape)) = shape.0.iter().find(|(number, _)| *number == tag >> 3) {
                    room.take(PART)?;
                    weigh(part, shape, room)?;
                }
                Some(rest)
            }
            // A group, which the decoder skips. Its fields are weighed as fields of the message.
            3 | 4 => Some(rest),
            5 => rest.get(4..),
            _ => None,
        };
        let Some(rest) = rest else { return Ok(()) };
        bytes = rest;
    }
    Ok(())
}

fn delimited(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (length, rest) = varint(bytes)?;
    rest.split_at_checked(usize::try_from(length).ok()?)
}

/// A number of up to ten bytes, and the bytes behind it.
fn varint(bytes: &[u8]) -> Option<(u64, &[u8])> {
    let mut number = 0;
    for (at, byte) in bytes.iter().take(10).enumerate() {
        number |= u64::from(byte & 0x7f) << (7 * at);
        if byte & 0x80 == 0 {
            return Some((number, &bytes[at + 1..]));
        }
    }
    None
}

/// Encodes requests and decodes answers within the bound.
pub(super) struct Bounded<Q, A>(PhantomData<(Q, A)>);

impl<Q, A> Bounded<Q, A> {
    pub(super) const fn new() -> Self {
        Self(PhantomData)
    }
}

impl<Q: prost::Message + 'static, A: Answer> Codec for Bounded<Q, A> {
    type Encode = Q;
    type Decode = A;
    type Encoder = ProstEncoder<Q>;
    type Decoder = Weighed<A>;

    fn encoder(&mut self) -> ProstEncoder<Q> {
        ProstEncoder::default()
    }

    fn decoder(&mut self) -> Weighed<A> {
        Weighed(PhantomData)
    }
}

pub(super) struct Weighed<A>(PhantomData<A>);

impl<A: Answer> Decoder for Weighed<A> {
    type Item = A;
    type Error = Status;

    fn decode(&mut self, bytes: &mut DecodeBuf<'_>) -> Result<Option<A>, Status> {
        // One message, in one piece.
        let answer = read(bytes.chunk())?;
        bytes.advance(bytes.remaining());
        Ok(Some(answer))
    }
}

/// Decodes a reply.
pub(crate) fn read<A: Answer>(bytes: &[u8]) -> Result<A, Status> {
    weighed::<A>(bytes).map_err(|error| Status::out_of_range(error.to_string()))?;
    // The error does not come from the server, so it is unknown whether the request was applied.
    A::decode(bytes).map_err(|error| Status::internal(error.to_string()))
}

/// What remains of the bound after a reply.
fn weighed<A: Answer>(bytes: &[u8]) -> Result<Room, TooLong> {
    let mut room = Room::whole();
    room.take(bytes.len() as u64)?;
    weigh(bytes, &A::SHAPE, &mut room).map(|()| room)
}

#[cfg(test)]
mod tests {
    use leasehold_core::LONGEST_REPLY;
    use prost::Message;

    use super::*;
    use crate::wire::{
        GrantResponse, Header, KeyValue, RangeResponse, Response, ResponseOp, StatusResponse, TxnResponse,
        WatchResponse,
    };

    fn range(count: usize) -> RangeResponse {
        let kv = KeyValue { key: b"/locks/a/1".to_vec(), value: vec![0x61; 1000], ..KeyValue::default() };
        let header = Some(Header { cluster_id: 7, revision: 9 });
        RangeResponse { header, kvs: vec![kv; count], ..RangeResponse::default() }
    }

    #[test]
    fn an_answer_is_read_whole_and_weighed_by_its_lists() {
        let found = range(3);
        let bytes = found.encode_to_vec();
        assert_eq!(read::<RangeResponse>(&bytes).unwrap(), found);
        let mut expected = Room::whole();
        expected.take(bytes.len() as u64 + 3 * PART).unwrap();
        assert_eq!(weighed::<RangeResponse>(&bytes), Ok(expected));
        let done = ResponseOp { response: Some(Response::Range(found)) };
        let txn = TxnResponse { responses: vec![done; 2], succeeded: true, ..TxnResponse::default() };
        assert_eq!(read::<TxnResponse>(&txn.encode_to_vec()).unwrap(), txn);
    }

    #[test]
    fn lists_of_empty_items_are_refused_at_any_depth() {
        let many = LONGEST_REPLY / 64;
        let empty = |field: u8, count: usize| [field << 3 | 2, 0].repeat(count);
        let within = |field: u8, inner: &[u8]| {
            let mut bytes = vec![field << 3 | 2];
            prost::encode_length_delimiter(inner.len(), &mut bytes).unwrap();
            [&bytes, inner].concat()
        };
        assert_eq!(weighed::<RangeResponse>(&empty(2, many)), Err(TooLong));
        assert_eq!(weighed::<TxnResponse>(&empty(3, many)), Err(TooLong));
        assert_eq!(weighed::<TxnResponse>(&within(3, &within(1, &empty(2, many)))), Err(TooLong));
        assert_eq!(weighed::<TxnResponse>(&within(3, &within(3, &empty(3, many)))), Err(TooLong));
        assert_eq!(weighed::<WatchResponse>(&empty(11, many)), Err(TooLong));
        assert_eq!(weighed::<StatusResponse>(&empty(8, many)), Err(TooLong));
        assert!(read::<RangeResponse>(&empty(2, many)).unwrap_err().message().contains("64 MiB"));
        // A skipped group hides nothing.
        let group = [&[0x7b, 0x7c][..], &empty(2, many)].concat();
        assert_eq!(weighed::<RangeResponse>(&group), Err(TooLong));
        // Fields that are not lists take no memory beside their bytes.
        assert!(weighed::<GrantResponse>(&empty(2, many)).is_ok());
    }

    #[test]
    fn bytes_that_are_no_message_are_refused() {
        for bytes in [&b"\xff"[..], b"\x12\x7f", b"\x09\x01", b"\x0d", b"\x17", &[0xff; 11]] {
            assert!(weighed::<RangeResponse>(bytes).is_ok(), "{bytes:?}");
            assert!(read::<RangeResponse>(bytes).is_err(), "{bytes:?}");
        }
    }
}
