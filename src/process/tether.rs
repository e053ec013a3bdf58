//! Stops a process when its parent is gone, even if the parent was killed.
//!
//! The standard input of the process is a pipe, and only the parent has the other end. When the parent is gone, the
//! system closes the pipe, and the process stops as if by SIGTERM. Unlike a parent-death signal this works on every
//! Unix, does not depend on the thread that started the process, and cannot be missed.

use std::{env, io, process::Command, thread, time::Duration};

use rustix::process::{Signal, getpid, kill_process};

/// Set for a process whose standard input is such a pipe.
const VARIABLE: &str = "LEASEWAY_UP_TETHER";
/// How long a process may take to stop before it is killed.
pub const STOP_TIMEOUT: Duration = Duration::from_secs(10);

/// Called by the parent. Standard input of the command must be a pipe.
pub(crate) fn tie(command: &mut Command) {
    command.env(VARIABLE, "stdin");
}

/// Called by the child: stops this process when the other end of the pipe is closed.
pub fn obey() {
    if env::var_os(VARIABLE).is_some() {
        thread::spawn(|| {
            // The parent never writes. An error also means that it is gone.
            let _ = io::copy(&mut io::stdin().lock(), &mut io::sink());
            stop_with(Signal::TERM);
            thread::sleep(STOP_TIMEOUT);
            stop_with(Signal::KILL);
        });
    }
}

fn stop_with(signal: Signal) {
    kill_process(getpid(), signal).expect("a process may signal itself");
}
