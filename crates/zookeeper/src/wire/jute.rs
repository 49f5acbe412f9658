//! Numbers, texts and lists in ZooKeeper's encoding: big-endian, with the length before each list and text
//! (<https://github.com/apache/zookeeper/blob/release-3.8.0/zookeeper-jute/src/main/java/org/apache/jute/BinaryOutputArchive.java>).

/// The bytes of the length before a message, a list or a text.
pub(crate) const LENGTH_BYTES: usize = 4;
/// The length that stands for an absent list or text.
const ABSENT: i32 = -1;

/// Writes one message, which begins with its length.
#[derive(Debug)]
pub(crate) struct Writer(Vec<u8>);

impl Writer {
    pub(crate) fn new() -> Self {
        Self(vec![0; LENGTH_BYTES])
    }

    pub(crate) fn int(&mut self, value: i32) -> &mut Self {
        self.0.extend(value.to_be_bytes());
        self
    }

    pub(crate) fn long(&mut self, value: i64) -> &mut Self {
        self.0.extend(value.to_be_bytes());
        self
    }

    pub(crate) fn bool(&mut self, value: bool) -> &mut Self {
        self.0.push(u8::from(value));
        self
    }

    pub(crate) fn bytes(&mut self, value: &[u8]) -> &mut Self {
        self.count(value.len());
        self.0.extend(value);
        self
    }

    pub(crate) fn text(&mut self, value: &str) -> &mut Self {
        self.bytes(value.as_bytes())
    }

    /// The length of a list or text. The bounds of names and values are far below the largest length.
    pub(crate) fn count(&mut self, count: usize) -> &mut Self {
        self.int(i32::try_from(count).unwrap_or(i32::MAX))
    }

    /// Fills in the length and returns the message.
    pub(crate) fn finish(mut self) -> Vec<u8> {
        let length = u32::try_from(self.0.len() - LENGTH_BYTES).unwrap_or(u32::MAX);
        self.0[..LENGTH_BYTES].copy_from_slice(&length.to_be_bytes());
        self.0
    }
}

/// Reads one message. A method returns `None` if the message is too short or contains something unexpected.
#[derive(Clone, Debug)]
pub(crate) struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    pub(crate) const fn new(message: &'a [u8]) -> Self {
        Self(message)
    }

    pub(crate) fn int(&mut self) -> Option<i32> {
        self.take().map(i32::from_be_bytes)
    }

    pub(crate) fn long(&mut self) -> Option<i64> {
        self.take().map(i64::from_be_bytes)
    }

    pub(crate) fn bool(&mut self) -> Option<bool> {
        self.take().map(|[byte]: [u8; 1]| byte != 0)
    }

    /// Reads a length and that many bytes. An absent value counts as an empty one.
    pub(crate) fn bytes(&mut self) -> Option<&'a [u8]> {
        let length = self.int()?;
        if length == ABSENT {
            return Some(&[]);
        }
        let (bytes, rest) = self.0.split_at_checked(usize::try_from(length).ok()?)?;
        self.0 = rest;
        Some(bytes)
    }

    pub(crate) fn text(&mut self) -> Option<String> {
        std::str::from_utf8(self.bytes()?).ok().map(str::to_owned)
    }

    /// The bytes that were not read yet.
    pub(crate) const fn rest(&self) -> &'a [u8] {
        self.0
    }

    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (bytes, rest) = self.0.split_first_chunk::<N>()?;
        self.0 = rest;
        Some(*bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn written_values_are_read_and_truncated_ones_are_refused() {
        let mut writer = Writer::new();
        writer.int(-7).long(1 << 40).bool(true).text("läuft").bytes(b"");
        let message = writer.finish();
        assert_eq!(message[..8], [0, 0, 0, 27, 255, 255, 255, 249]);
        let read = |message| {
            let mut reader = Reader::new(message);
            Some((reader.int()?, reader.long()?, reader.bool()?, reader.text()?, reader.bytes()?.len()))
        };
        assert_eq!(read(&message[4..]), Some((-7, 1 << 40, true, "läuft".to_owned(), 0)));
        for end in 4..message.len() {
            assert_eq!(read(&message[4..end]), None, "{end}");
        }
        let mut nothing = Reader::new(&[255; 4]);
        assert_eq!(nothing.bytes(), Some(&[][..]));
        assert_eq!(Reader::new(&[255, 255, 255, 254]).bytes(), None);
        assert_eq!(Reader::new(&[127, 255, 255, 255, 0]).bytes(), None);
    }
}
