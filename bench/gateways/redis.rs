//! Counters in Redis, as services with central counters keep them: a key for each limit and second, with INCRBY and
//! EXPIRE in one write. Implements only this part of Redis' protocol.

use std::{io, net::SocketAddr};

use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader},
    net::{
        TcpStream,
        tcp::{OwnedReadHalf, OwnedWriteHalf},
    },
    sync::{mpsc, oneshot},
};

/// The maximum number of requests that wait for the connection.
const QUEUE: usize = 1024;

/// Counts over one connection, with many requests in flight.
#[derive(Clone)]
pub(crate) struct Redis(mpsc::Sender<Count>);

struct Count {
    key: String,
    hits: u32,
    counted: oneshot::Sender<u64>,
}

impl Redis {
    pub(crate) async fn connect(address: SocketAddr) -> io::Result<Redis> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        let (read, write) = stream.into_split();
        let (counts, asked) = mpsc::channel(QUEUE);
        let (waiting, answered) = mpsc::channel(QUEUE);
        tokio::spawn(send(write, asked, waiting));
        tokio::spawn(receive(BufReader::new(read), answered));
        Ok(Redis(counts))
    }

    /// The count of a key, including this request. None: Redis is gone.
    pub(crate) async fn count(&self, key: String, hits: u32) -> Option<u64> {
        let (counted, answer) = oneshot::channel();
        self.0.send(Count { key, hits, counted }).await.ok()?;
        answer.await.ok()
    }
}

/// Sends all waiting requests together.
async fn send(
    mut write: OwnedWriteHalf,
    mut asked: mpsc::Receiver<Count>,
    waiting: mpsc::Sender<oneshot::Sender<u64>>,
) {
    let (mut bytes, mut counts) = (Vec::new(), Vec::new());
    while asked.recv_many(&mut counts, QUEUE).await > 0 {
        bytes.clear();
        for Count { key, hits, .. } in &counts {
            command(&mut bytes, &["INCRBY", key, &hits.to_string()]);
            command(&mut bytes, &["EXPIRE", key, "2"]);
        }
        if write.write_all(&bytes).await.is_err() {
            return;
        }
        for count in counts.drain(..) {
            if waiting.send(count.counted).await.is_err() {
                return;
            }
        }
    }
}

fn command(bytes: &mut Vec<u8>, words: &[&str]) {
    bytes.extend_from_slice(format!("*{}\r\n", words.len()).as_bytes());
    for word in words {
        bytes.extend_from_slice(format!("${}\r\n{word}\r\n", word.len()).as_bytes());
    }
}

/// Reads two numbers for each request: the count, and the result of EXPIRE.
async fn receive(mut read: BufReader<OwnedReadHalf>, mut answered: mpsc::Receiver<oneshot::Sender<u64>>) {
    let mut line = String::new();
    while let Some(counted) = answered.recv().await {
        let Some(count) = number(&mut read, &mut line).await else { return };
        let Some(_) = number(&mut read, &mut line).await else { return };
        // An error means that the caller gave up.
        let _ = counted.send(count);
    }
}

async fn number(read: &mut BufReader<OwnedReadHalf>, line: &mut String) -> Option<u64> {
    line.clear();
    read.read_line(line).await.ok()?;
    line.strip_prefix(':')?.trim_end().parse().ok()
}
