//! What keeps a process from outliving the one that started it, however that ends.
//!
//! Its standard input is a pipe whose other end only the parent has. When the parent is gone, be it by SIGKILL, the
//! system closes the pipe, and the process, which reads from it, stops as if asked to. Unlike a parent-death signal
//! this works on every Unix, and cannot come too early because a thread of the parent ended, nor be missed because the
//! parent was gone before it was asked for.

use std::{env, io, process::Command, thread, time::Duration};

use rustix::process::{Signal, getpid, kill_process};

/// Tells a process that its standard input is such a pipe.
const VARIABLE: &str = "LEASEWAY_UP_TETHER";
/// How long stopping may take before it is ended the hard way.
pub const STOP_TIMEOUT: Duration = Duration::from_secs(10);

/// To be called on what is to be started, whose standard input must be a pipe.
pub(crate) fn tie(command: &mut Command) {
    command.env(VARIABLE, "stdin");
}

/// To be called by what was started: stops this process when the other end of the pipe is gone.
pub fn obey() {
    if env::var_os(VARIABLE).is_some() {
        thread::spawn(|| {
            // Nothing is ever sent; an error is as good as an end.
            let _ = io::copy(&mut io::stdin().lock(), &mut io::sink());
            stop_with(Signal::TERM);
            thread::sleep(STOP_TIMEOUT);
            stop_with(Signal::KILL);
        });
    }
}

fn stop_with(signal: Signal) {
    kill_process(getpid(), signal).expect("a process may send signals to itself");
}
