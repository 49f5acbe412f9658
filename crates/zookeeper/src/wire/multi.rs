//! A multi: several changes in one step, all or none.

use super::{
    error_code::ErrorCode,
    jute::{Reader, Writer},
    ops::{Create, Delete, Op, SetData},
};

/// One of the changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum MultiOp {
    Create(Create),
    Delete(Delete),
    SetData(SetData),
    /// Changes nothing. Fails unless the node exists and its data has this version, or `ANY_VERSION`.
    Check {
        path: String,
        version: i32,
    },
}

/// Changes that are applied together or not at all.
#[derive(Clone, Debug)]
pub(crate) struct Multi(pub(crate) Vec<MultiOp>);

const CHECK: i32 = 13;
const SET_DATA: i32 = SetData::CODE;
const DELETE: i32 = Delete::CODE;
const CREATE: i32 = Create::CODE;
/// The code of a created node in an answer, whichever code the request had. Only the path of the node follows the code.
const CREATED: i32 = 1;
const CREATE_CONTAINER: i32 = super::ops::NodeKind::Container.code();
/// The code of a step that was not applied, in place of its answer; also the code of the end of a multi.
const ERROR: i32 = -1;

impl Op for Multi {
    const CODE: i32 = 14;
    /// Success, or the index and the error of the failed step.
    type Answer = Result<(), (usize, ErrorCode)>;

    fn write(&self, writer: &mut Writer) {
        for step in &self.0 {
            let code = match step {
                MultiOp::Create(create) => create.kind.code(),
                MultiOp::Delete(_) => DELETE,
                MultiOp::SetData(_) => SET_DATA,
                MultiOp::Check { .. } => CHECK,
            };
            write_step_header(writer, code, false);
            match step {
                MultiOp::Create(create) => create.write(writer),
                MultiOp::Delete(delete) => delete.write(writer),
                MultiOp::SetData(set) => set.write(writer),
                MultiOp::Check { path, version } => drop(writer.text(path).int(*version)),
            }
        }
        write_step_header(writer, ERROR, true);
    }

    fn read(reader: &mut Reader<'_>) -> Option<Self::Answer> {
        read_steps(reader, |_| ())
    }
}

/// Nodes that are created together or not at all.
#[derive(Clone, Debug)]
pub(crate) struct CreateAll(pub(crate) Vec<Create>);

impl Op for CreateAll {
    const CODE: i32 = Multi::CODE;
    /// The paths of the nodes, or the index and the error of the failed step.
    type Answer = Result<Vec<String>, (usize, ErrorCode)>;

    fn write(&self, writer: &mut Writer) {
        Multi(self.0.iter().cloned().map(MultiOp::Create).collect()).write(writer);
    }

    fn read(reader: &mut Reader<'_>) -> Option<Self::Answer> {
        let mut paths = Vec::new();
        Some(read_steps(reader, |path| paths.push(path))?.map(|()| paths))
    }
}

/// Reads the answer to a multi: success, or the index and the error of the failed step. Passes on the path of each
/// created node.
fn read_steps(
    reader: &mut Reader<'_>,
    mut created: impl FnMut(String),
) -> Option<Result<(), (usize, ErrorCode)>> {
    let (mut failed, mut index) = (None, 0);
    loop {
        let (code, is_end, _error) = (reader.int()?, reader.bool()?, reader.int()?);
        if is_end {
            return Some(failed.map_or(Ok(()), Err));
        }
        match code {
            ERROR => {
                // Steps before the failed one have the code 0, steps after it the code for skipped ones.
                let code = ErrorCode(reader.int()?);
                if failed.is_none() && code.0 != 0 && code != ErrorCode::SKIPPED {
                    failed = Some((index, code));
                }
            }
            CREATED => created(reader.text()?),
            CREATE | CREATE_CONTAINER => created(Create::read(reader)?.path),
            SET_DATA => drop(SetData::read(reader)),
            CHECK | DELETE => {}
            _ => return None,
        }
        index += 1;
    }
}

/// Writes the header of a step: its code, whether it marks the end of the multi, and no error.
fn write_step_header(writer: &mut Writer, code: i32, is_end: bool) {
    let no_error = -1;
    writer.int(code).bool(is_end).int(no_error);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(steps: &[(i32, Option<i32>)]) -> Vec<u8> {
        let mut writer = Writer::new();
        for (code, error) in steps {
            writer.int(*code).bool(false).int(error.unwrap_or(0));
            if let Some(error) = error {
                writer.int(*error);
            }
        }
        writer.int(-1).bool(true).int(-1);
        writer.finish().split_off(4)
    }

    #[test]
    fn the_failed_step_of_a_multi_is_identified() {
        let read = |message: &[u8]| Multi::read(&mut Reader::new(message));
        let failed = answer(&[(ERROR, Some(0)), (ERROR, Some(-101)), (ERROR, Some(-2))]);
        assert_eq!(read(&failed), Some(Err((1, ErrorCode::NO_NODE))));
        assert_eq!(read(&answer(&[(DELETE, None), (CHECK, None)])), Some(Ok(())));
        assert_eq!(read(&failed[..failed.len() - 1]), None);
        assert_eq!(read(&answer(&[(99, None)])), None);
    }

    #[test]
    fn the_paths_of_created_nodes_are_read_in_order() {
        let read = |message: &[u8]| CreateAll::read(&mut Reader::new(message));
        let mut writer = Writer::new();
        for path in ["/a/x0000000001", "/b/x0000000000"] {
            writer.int(CREATED).bool(false).int(0).text(path);
        }
        writer.int(-1).bool(true).int(-1);
        let created = writer.finish().split_off(4);
        let paths = vec!["/a/x0000000001".to_owned(), "/b/x0000000000".to_owned()];
        assert_eq!(read(&created), Some(Ok(paths)));
        assert_eq!(
            read(&answer(&[(ERROR, Some(0)), (ERROR, Some(-101))])),
            Some(Err((1, ErrorCode::NO_NODE)))
        );
    }
}
