//! Fuzz targets for the parsers of untrusted bytes: for the tests below and for `fuzz/`. A target panics when a
//! parser is wrong.

use super::{
    dir::encode::{Decoded, decode, file_name},
    table::layout::{HEADER_SIZE, Header, RECORD_SIZE, name_bytes},
    table::record::Record,
};

/// A state file: its header, and the records after it.
pub fn state(bytes: &[u8]) {
    let mut header = [0; HEADER_SIZE];
    header.iter_mut().zip(bytes).for_each(|(target, byte)| *target = *byte);
    if let Ok(parsed) = Header::from_bytes(&header, bytes.len() as u64) {
        let _ = (parsed, name_bytes(&header).len());
    }
    for chunk in bytes.get(HEADER_SIZE..).unwrap_or_default().chunks(RECORD_SIZE) {
        let mut record = [0; RECORD_SIZE];
        record.iter_mut().zip(chunk).for_each(|(target, byte)| *target = *byte);
        for bytes in [Record::with_checksum(&record), record] {
            if let Ok(Some(record)) = Record::from_bytes(&bytes) {
                assert_eq!(
                    Record::from_bytes(&record.to_bytes()),
                    Ok(Some(record)),
                    "what is read can be written"
                );
            }
        }
    }
}

/// The name of a file in the lock directory.
pub fn file(bytes: &[u8]) {
    let Ok(file) = std::str::from_utf8(bytes) else { return };
    if let Some(Decoded::Name(name)) = decode(file) {
        assert_eq!(file_name(&name), file, "a name has one file");
    }
}

#[cfg(test)]
mod tests {
    use leasehold_testkit::fuzz;

    use super::*;
    use crate::{
        Lineage, Name,
        engines::file::table::record::{RecordState, tests::record},
    };

    #[test]
    fn state_files_are_read_from_random_bytes() {
        let record = Record { state: RecordState::Waiting, owner: "me@here:7".into(), ..record() };
        let header = Header::new(Lineage::new(7), [1; 16]).to_bytes(&Name::new("nightly").unwrap());
        let state_file = [&header[..], &record.to_bytes(), &record.to_bytes()].concat();
        fuzz::run(&[header.to_vec(), state_file], state);
    }

    #[test]
    fn names_of_files_are_read_from_random_bytes() {
        let hashed = format!("%h{}.lock", "AB".repeat(32));
        let names = ["nightly.lock", "a%2Fb%C3%A4.lock", "%2E..lock", &hashed];
        fuzz::run(&names.map(|name| name.as_bytes().to_vec()), file);
    }
}
