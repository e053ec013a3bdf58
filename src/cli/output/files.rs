//! Files that commands write.

use std::{
    fs::{self, OpenOptions},
    io::{self, Write as _},
    os::unix::fs::OpenOptionsExt as _,
    path::Path,
};

use crate::error::CliError;

/// A file that its owner alone can read. One that is there stays, unless it may be replaced.
pub(crate) fn write_new(path: &Path, bytes: &[u8], replace: bool) -> Result<(), CliError> {
    if !replace && path.exists() {
        return Err(CliError::FileExists { path: path.to_owned() });
    }
    write_file(path, bytes, 0o600).map_err(|error| CliError::Data { path: path.to_owned(), error })
}

/// Beside its place first, with its permissions from the start.
pub(crate) fn write_file(path: &Path, bytes: &[u8], mode: u32) -> io::Result<()> {
    let mut beside = path.as_os_str().to_owned();
    beside.push(".new");
    match fs::remove_file(&beside) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut file = OpenOptions::new().write(true).create_new(true).mode(mode).open(&beside)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    fs::rename(&beside, path)
}
