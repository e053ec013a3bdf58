//! A `leaseway` process in a pseudo-terminal.

use std::{
    fs::File,
    io::{Read as _, Write as _},
    os::fd::OwnedFd,
    process::{Child, Command, ExitStatus, Stdio},
    sync::{Arc, Mutex},
    thread,
};

use rustix::{
    pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt},
    termios::{LocalModes, Winsize, tcgetattr, tcsetwinsize},
};

use super::{binary, wait::eventually};

pub(crate) struct Terminal {
    controller: File,
    /// Kept open, so that its modes can be read after the process has ended.
    user: OwnedFd,
    child: Child,
    output: Arc<Mutex<Vec<u8>>>,
    size: (usize, usize),
}

impl Terminal {
    /// Starts it in a terminal of this size.
    pub(crate) fn start(arguments: &[&str], (columns, rows): (u16, u16)) -> Terminal {
        let controller = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
        grantpt(&controller).unwrap();
        unlockpt(&controller).unwrap();
        let name = ptsname(&controller, Vec::new()).unwrap().into_string().unwrap();
        let user = File::options().read(true).write(true).open(name).unwrap();
        tcsetwinsize(&user, Winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 }).unwrap();
        let standard = || Stdio::from(user.try_clone().unwrap());
        let mut command = Command::new("setsid");
        command.arg("--ctty").arg(binary::path()).args(arguments).env("TERM", "xterm");
        for (variable, _) in std::env::vars().filter(|(name, _)| name.starts_with("LEASEWAY_") || name == "NO_COLOR") {
            command.env_remove(variable);
        }
        let child = command.stdin(standard()).stdout(standard()).stderr(standard()).spawn().unwrap();
        let output = Arc::<Mutex<Vec<u8>>>::default();
        let (mut reader, of_thread) = (File::from(controller.try_clone().unwrap()), Arc::clone(&output));
        thread::spawn(move || {
            let mut some = [0; 4096];
            while let Ok(read @ 1..) = reader.read(&mut some) {
                of_thread.lock().unwrap().extend(&some[..read]);
            }
        });
        Terminal {
            controller: controller.into(),
            user: user.into(),
            child,
            output,
            size: (columns.into(), rows.into()),
        }
    }

    pub(crate) fn press(&mut self, keys: &str) {
        self.controller.write_all(keys.as_bytes()).unwrap();
    }

    /// All output so far.
    pub(crate) fn output(&self) -> String {
        String::from_utf8_lossy(&self.output.lock().unwrap()).into_owned()
    }

    /// The lines on the screen.
    pub(crate) fn screen(&self) -> Vec<String> {
        drawn(&self.output(), self.size)
    }

    /// Waits for a line that contains this text.
    pub(crate) fn line(&self, with: &str) -> String {
        eventually(with, || self.screen().into_iter().find(|line| line.contains(with)))
    }

    /// Whether the terminal is back in cooked mode.
    pub(crate) fn is_as_before(&self) -> bool {
        let modes = tcgetattr(&self.user).unwrap().local_modes;
        modes.contains(LocalModes::ICANON | LocalModes::ECHO)
    }

    pub(crate) fn ended(&mut self) -> ExitStatus {
        eventually("the process ends", || self.child.try_wait().unwrap())
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Interprets escape sequences that move the cursor or clear text.
fn drawn(output: &str, (columns, rows): (usize, usize)) -> Vec<String> {
    let (mut cells, mut row, mut column) = (vec![vec![' '; columns]; rows], 0, 0);
    let mut rest = output.chars().peekable();
    while let Some(char) = rest.next() {
        match char {
            '\u{1b}' if rest.next_if_eq(&'[').is_some() => {
                let mut numbers = String::new();
                let command = loop {
                    match rest.next() {
                        Some(char @ '\u{40}'..='\u{7e}') => break char,
                        Some(char) => numbers.push(char),
                        None => return lines(&cells),
                    }
                };
                match command {
                    'H' => {
                        let (to_row, to_column) = numbers.split_once(';').unwrap_or(("1", "1"));
                        row = to_row.parse::<usize>().unwrap_or(1) - 1;
                        column = to_column.parse::<usize>().unwrap_or(1) - 1;
                    }
                    'J' => cells.iter_mut().for_each(|row| row.fill(' ')),
                    _ => {}
                }
            }
            '\r' => column = 0,
            '\n' => row += 1,
            char => {
                if let Some(cell) = cells.get_mut(row).and_then(|row| row.get_mut(column)) {
                    *cell = char;
                }
                column += 1;
            }
        }
    }
    lines(&cells)
}

fn lines(cells: &[Vec<char>]) -> Vec<String> {
    cells.iter().map(|row| row.iter().collect::<String>().trim_end().to_owned()).collect()
}
