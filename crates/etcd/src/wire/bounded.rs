//! Decodes replies within a bound on their size in memory. A field of two bytes can become a value of a hundred bytes,
//! so the memory that a reply takes is computed before the reply is decoded.

use std::marker::PhantomData;

use leasehold_core::{Room, TooLong};
use prost::bytes::Buf;
use tonic::{
    Status,
    codec::{Codec, DecodeBuf, Decoder},
};
use tonic_prost::ProstEncoder;

/// The memory, in bytes, that an item of a list (a message or a text) takes beside its own bytes.
const ITEM_OVERHEAD: u64 = 128;

/// The low bits of a protobuf tag are the wire type, the high bits the number of the field.
const WIRE_TYPE_BITS: u32 = 3;
const WIRE_TYPE_MASK: u64 = (1 << WIRE_TYPE_BITS) - 1;
const VARINT: u64 = 0;
const FIXED_64: u64 = 1;
const LENGTH_DELIMITED: u64 = 2;
const GROUP_START: u64 = 3;
const GROUP_END: u64 = 4;
const FIXED_32: u64 = 5;
/// The most bytes of a varint.
const MAX_VARINT_BYTES: usize = 10;

/// The fields of a message that are lists or contain lists: the number of each field and the shape of its items.
pub(crate) struct Shape(pub(crate) &'static [(u64, &'static Shape)]);

/// A message without lists, or a text.
pub(crate) const PLAIN: Shape = Shape(&[]);

/// A reply of the server.
pub(crate) trait Answer: prost::Message + Default + 'static {
    const SHAPE: Shape = PLAIN;
}

/// Deducts the memory that the lists of a message take, beside their bytes, from `room`. Bytes that are no message also
/// give `Ok`: decoding them fails, no later than at the byte where this function stops.
fn weigh(mut bytes: &[u8], shape: &Shape, room: &mut Room) -> Result<(), TooLong> {
    while let Some((tag, rest)) = read_varint(bytes) {
        let rest = match tag & WIRE_TYPE_MASK {
            VARINT => read_varint(rest).map(|(_, rest)| rest),
            FIXED_64 => rest.get(8..),
            LENGTH_DELIMITED => {
                let Some((item, rest)) = read_delimited(rest) else { return Ok(()) };
                if let Some((_, shape)) = shape.0.iter().find(|(number, _)| *number == tag >> WIRE_TYPE_BITS)
                {
                    room.take(ITEM_OVERHEAD)?;
                    weigh(item, shape, room)?;
                }
                Some(rest)
            }
            // A group, which the decoder skips. Its fields are weighed as fields of the message.
            GROUP_START | GROUP_END => Some(rest),
            FIXED_32 => rest.get(4..),
            _ => None,
        };
        let Some(rest) = rest else { return Ok(()) };
        bytes = rest;
    }
    Ok(())
}

/// Reads a length and that many bytes. Returns these bytes and the bytes behind them.
fn read_delimited(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (length, rest) = read_varint(bytes)?;
    rest.split_at_checked(usize::try_from(length).ok()?)
}

/// Reads a number of variable length. Returns the number and the bytes behind it.
fn read_varint(bytes: &[u8]) -> Option<(u64, &[u8])> {
    let mut number = 0;
    for (index, byte) in bytes.iter().take(MAX_VARINT_BYTES).enumerate() {
        number |= u64::from(byte & 0x7f) << (7 * index);
        if byte & 0x80 == 0 {
            return Some((number, &bytes[index + 1..]));
        }
    }
    None
}

/// The codec of a call: encodes requests `Q`, and decodes answers `A` within the bound.
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
    type Decoder = BoundedDecoder<A>;

    fn encoder(&mut self) -> ProstEncoder<Q> {
        ProstEncoder::default()
    }

    fn decoder(&mut self) -> BoundedDecoder<A> {
        BoundedDecoder(PhantomData)
    }
}

/// The decoder of a call: decodes answers of type `A`, and weighs each answer before it is decoded.
pub(super) struct BoundedDecoder<A>(PhantomData<A>);

impl<A: Answer> Decoder for BoundedDecoder<A> {
    type Item = A;
    type Error = Status;

    fn decode(&mut self, bytes: &mut DecodeBuf<'_>) -> Result<Option<A>, Status> {
        // tonic passes one message, in one piece.
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

/// The part of the bound that a reply does not need.
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
        let header = Some(Header { cluster_id: 7, member_id: 1, revision: 9 });
        RangeResponse { header, kvs: vec![kv; count], ..RangeResponse::default() }
    }

    #[test]
    fn an_answer_is_read_whole_and_weighed_by_its_lists() {
        let range_reply = range(3);
        let bytes = range_reply.encode_to_vec();
        assert_eq!(read::<RangeResponse>(&bytes).unwrap(), range_reply);
        let mut expected = Room::whole();
        expected.take(bytes.len() as u64 + 3 * ITEM_OVERHEAD).unwrap();
        assert_eq!(weighed::<RangeResponse>(&bytes), Ok(expected));
        let step_result = ResponseOp { response: Some(Response::Range(range_reply)) };
        let txn = TxnResponse { responses: vec![step_result; 2], succeeded: true, ..TxnResponse::default() };
        assert_eq!(read::<TxnResponse>(&txn.encode_to_vec()).unwrap(), txn);
    }

    #[test]
    fn lists_of_empty_items_are_refused_at_any_depth() {
        let item_count = LONGEST_REPLY / 64;
        let empty_items = |field: u8, count: usize| [field << 3 | 2, 0].repeat(count);
        let nested = |field: u8, inner: &[u8]| {
            let mut bytes = vec![field << 3 | 2];
            prost::encode_length_delimiter(inner.len(), &mut bytes).unwrap();
            [&bytes, inner].concat()
        };
        assert_eq!(weighed::<RangeResponse>(&empty_items(2, item_count)), Err(TooLong));
        assert_eq!(weighed::<TxnResponse>(&empty_items(3, item_count)), Err(TooLong));
        assert_eq!(weighed::<TxnResponse>(&nested(3, &nested(1, &empty_items(2, item_count)))), Err(TooLong));
        assert_eq!(weighed::<TxnResponse>(&nested(3, &nested(3, &empty_items(3, item_count)))), Err(TooLong));
        assert_eq!(weighed::<WatchResponse>(&empty_items(11, item_count)), Err(TooLong));
        assert_eq!(weighed::<StatusResponse>(&empty_items(8, item_count)), Err(TooLong));
        assert!(read::<RangeResponse>(&empty_items(2, item_count)).unwrap_err().message().contains("64 MiB"));
        // A skipped group hides nothing.
        let group = [&[0x7b, 0x7c][..], &empty_items(2, item_count)].concat();
        assert_eq!(weighed::<RangeResponse>(&group), Err(TooLong));
        // Fields that are not lists take no memory beside their bytes.
        assert!(weighed::<GrantResponse>(&empty_items(2, item_count)).is_ok());
    }

    #[test]
    fn bytes_that_are_no_message_are_refused() {
        for bytes in [&b"\xff"[..], b"\x12\x7f", b"\x09\x01", b"\x0d", b"\x17", &[0xff; 11]] {
            assert!(weighed::<RangeResponse>(bytes).is_ok(), "{bytes:?}");
            assert!(read::<RangeResponse>(bytes).is_err(), "{bytes:?}");
        }
    }
}
