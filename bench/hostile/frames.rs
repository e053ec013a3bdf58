//! HTTP/2 frames, byte for byte, which no client library would send.

/// The connection preface; a SETTINGS frame follows.
pub(crate) const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

pub(crate) const DATA: u8 = 0;
pub(crate) const HEADERS: u8 = 1;
pub(crate) const PRIORITY: u8 = 2;
pub(crate) const RST_STREAM: u8 = 3;
pub(crate) const SETTINGS: u8 = 4;
pub(crate) const PING: u8 = 6;
pub(crate) const WINDOW_UPDATE: u8 = 8;
pub(crate) const CONTINUATION: u8 = 9;

pub(crate) const END_STREAM: u8 = 1;
pub(crate) const END_HEADERS: u8 = 4;

/// The id of SETTINGS_INITIAL_WINDOW_SIZE.
const INITIAL_WINDOW_SIZE: u16 = 4;
const HEADER_TABLE_SIZE: u16 = 1;

pub(crate) fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let mut frame = (payload.len() as u64).to_be_bytes()[5..].to_vec();
    frame.extend_from_slice(&[kind, flags]);
    frame.extend_from_slice(&stream.to_be_bytes());
    frame.extend_from_slice(payload);
    frame
}

/// The beginning of a connection. The server may send `window` bytes of each answer.
pub(crate) fn opening(window: u32) -> Vec<u8> {
    [PREFACE, &frame(SETTINGS, 0, 0, &setting(INITIAL_WINDOW_SIZE, window))].concat()
}

/// Changes the window of streams and the size of the header table.
pub(crate) fn settings(window: u32, table: u32) -> Vec<u8> {
    frame(SETTINGS, 0, 0, &[setting(INITIAL_WINDOW_SIZE, window), setting(HEADER_TABLE_SIZE, table)].concat())
}

fn setting(name: u16, value: u32) -> Vec<u8> {
    [&name.to_be_bytes()[..], &value.to_be_bytes()].concat()
}

/// The id of the nth stream of a client, from 0 on.
pub(crate) fn stream(nth: u32) -> u32 {
    2 * nth + 1
}

/// The headers of a call, as literals.
pub(crate) fn call_headers(path: &str) -> Vec<u8> {
    let mut block = vec![0x83, 0x86];
    literal(&mut block, ":path", path);
    literal(&mut block, ":authority", "localhost");
    literal(&mut block, "content-type", "application/grpc");
    literal(&mut block, "te", "trailers");
    block
}

/// A literal header that is not indexed.
pub(crate) fn literal(block: &mut Vec<u8>, name: &str, value: &str) {
    block.push(0);
    for text in [name, value] {
        let length = u8::try_from(text.len()).ok().filter(|length| *length < 0x7f);
        block.push(length.expect("the length of a header fits seven bits"));
        block.extend_from_slice(text.as_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_as_the_standard_has_them() {
        assert_eq!(frame(PING, 0, 0, &[7; 8]), [&[0, 0, 8, 6, 0, 0, 0, 0, 0][..], &[7; 8]].concat());
        assert_eq!(frame(DATA, END_STREAM, 3, &[])[..], [0, 0, 0, 0, 1, 0, 0, 0, 3]);
        assert_eq!(settings(1, 2)[9..], [0, 4, 0, 0, 0, 1, 0, 1, 0, 0, 0, 2]);
        assert!(opening(0).starts_with(PREFACE));
    }
}
