//! Where the lines of earlier shells are kept.

use std::{
    env,
    ffi::OsString,
    path::{Path, PathBuf},
};

/// The file for this user, if it is known where users keep such things.
pub(super) fn file() -> Option<PathBuf> {
    below(env::var_os("XDG_STATE_HOME"), env::var_os("HOME"))
}

fn below(state: Option<OsString>, home: Option<OsString>) -> Option<PathBuf> {
    // The specification of these directories has relative paths ignored.
    let absolute = |path: OsString| Some(PathBuf::from(path)).filter(|path| path.is_absolute());
    let state = state.and_then(absolute).or_else(|| Some(home.and_then(absolute)?.join(".local/state")))?;
    Some(state.join("leaseway/shell_history"))
}

/// Makes the directories that the file is in.
pub(super) fn make_room(file: &Path) -> std::io::Result<()> {
    file.parent().map_or(Ok(()), std::fs::create_dir_all)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(state: Option<&str>, home: Option<&str>) -> Option<String> {
        below(state.map(Into::into), home.map(Into::into)).map(|path| path.display().to_string())
    }

    #[test]
    fn it_is_in_the_state_directory() {
        assert_eq!(of(Some("/state"), Some("/home/u")).as_deref(), Some("/state/leaseway/shell_history"));
        assert_eq!(of(None, Some("/home/u")).as_deref(), Some("/home/u/.local/state/leaseway/shell_history"));
    }

    #[test]
    fn what_is_relative_or_empty_is_ignored() {
        for state in ["", "state"] {
            assert_eq!(
                of(Some(state), Some("/home/u")).as_deref(),
                Some("/home/u/.local/state/leaseway/shell_history")
            );
        }
        assert_eq!(of(None, None), None);
        assert_eq!(of(None, Some("")), None);
    }

    #[test]
    fn missing_directories_are_made() {
        let directory = tempfile::tempdir().expect("a directory for the test");
        let file = directory.path().join("a/b/shell_history");
        make_room(&file).expect("they can be made");
        std::fs::write(&file, "").expect("there is room");
    }
}
