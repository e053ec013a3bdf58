//! A client of Redis for counters. Only these commands of its protocol are implemented.

use std::{io, net::SocketAddr};

use tokio::{
    io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader},
    net::{
        TcpStream,
        tcp::{OwnedReadHalf, OwnedWriteHalf},
    },
    sync::{mpsc, oneshot},
};

/// The maximum number of requests that wait for the connection.
const QUEUE: usize = 1024;

/// A Redis client with one connection, which pipelines requests.
#[derive(Clone)]
pub(crate) struct Redis(mpsc::Sender<Count>);

struct Count {
    key: String,
    amount: i64,
    /// Whether the key expires, as those of limits per second do.
    expires: bool,
    counted: oneshot::Sender<i64>,
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

    /// Adds `hits` to the count of a key that lasts for two seconds, with INCRBY and EXPIRE in one write, as rate limit
    /// services do. Returns the new count. `None` if the connection to Redis is lost.
    pub(crate) async fn count(&self, key: String, hits: u32) -> Option<i64> {
        self.ask(key, hits.into(), true).await
    }

    /// Adds an amount, which may be negative, to a key by INCRBY. Returns the new sum. `None` if the connection to Redis
    /// is lost.
    pub(crate) async fn add(&self, key: &str, amount: i64) -> Option<i64> {
        self.ask(key.to_owned(), amount, false).await
    }

    async fn ask(&self, key: String, amount: i64, expires: bool) -> Option<i64> {
        let (counted, answer) = oneshot::channel();
        self.0.send(Count { key, amount, expires, counted }).await.ok()?;
        answer.await.ok()
    }
}

/// The number of commands that this Redis has processed, this one included.
pub(crate) async fn processed(address: SocketAddr) -> Result<u64, String> {
    let read = async {
        let mut stream = TcpStream::connect(address).await?;
        stream.write_all(b"INFO stats\r\nQUIT\r\n").await?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await?;
        Ok(answer)
    };
    let answer = read.await.map_err(|error: io::Error| error.to_string())?;
    let count = answer.lines().find_map(|line| line.strip_prefix("total_commands_processed:")?.parse().ok());
    count.ok_or_else(|| format!("INFO has no total_commands_processed: {answer}"))
}

/// Sends all waiting requests in one write.
async fn send(
    mut write: OwnedWriteHalf,
    mut asked: mpsc::Receiver<Count>,
    waiting: mpsc::Sender<(bool, oneshot::Sender<i64>)>,
) {
    let (mut bytes, mut counts) = (Vec::new(), Vec::new());
    while asked.recv_many(&mut counts, QUEUE).await > 0 {
        bytes.clear();
        for Count { key, amount, expires, .. } in &counts {
            command(&mut bytes, &["INCRBY", key, &amount.to_string()]);
            if *expires {
                command(&mut bytes, &["EXPIRE", key, "2"]);
            }
        }
        if write.write_all(&bytes).await.is_err() {
            return;
        }
        for count in counts.drain(..) {
            if waiting.send((count.expires, count.counted)).await.is_err() {
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

/// Reads a number for each request: the count. The result of EXPIRE follows if the key expires.
async fn receive(mut read: BufReader<OwnedReadHalf>, mut answered: mpsc::Receiver<(bool, oneshot::Sender<i64>)>) {
    let mut line = String::new();
    while let Some((expires, counted)) = answered.recv().await {
        let Some(count) = number(&mut read, &mut line).await else { return };
        if expires && number(&mut read, &mut line).await.is_none() {
            return;
        }
        // Fails if the caller has given up.
        let _ = counted.send(count);
    }
}

async fn number(read: &mut BufReader<OwnedReadHalf>, line: &mut String) -> Option<i64> {
    line.clear();
    read.read_line(line).await.ok()?;
    line.strip_prefix(':')?.trim_end().parse().ok()
}
