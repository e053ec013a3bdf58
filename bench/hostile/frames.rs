//! Frames of HTTP/2, byte for byte: what no client library would send.

/// With this a client begins, and then with its settings.
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

/// A setting: how much of an answer may be sent before more is asked for.
const INITIAL_WINDOW_SIZE: u16 = 4;
const HEADER_TABLE_SIZE: u16 = 1;

/// A frame as it goes over the wire.
pub(crate) fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    // Three bytes of length.
    let mut frame = (payload.len() as u64).to_be_bytes()[5..].to_vec();
    frame.extend_from_slice(&[kind, flags]);
    frame.extend_from_slice(&stream.to_be_bytes());
    frame.extend_from_slice(payload);
    frame
}

/// What a connection begins with. Of each answer the server may send `window` bytes.
pub(crate) fn opening(window: u32) -> Vec<u8> {
    [PREFACE, &frame(SETTINGS, 0, 0, &setting(INITIAL_WINDOW_SIZE, window))].concat()
}

/// Another window for streams, and a table for headers of another size.
pub(crate) fn settings(window: u32, table: u32) -> Vec<u8> {
    frame(SETTINGS, 0, 0, &[setting(INITIAL_WINDOW_SIZE, window), setting(HEADER_TABLE_SIZE, table)].concat())
}

fn setting(name: u16, value: u32) -> Vec<u8> {
    [&name.to_be_bytes()[..], &value.to_be_bytes()].concat()
}

/// The nth stream of a client, from 0 on.
pub(crate) fn stream(nth: u32) -> u32 {
    2 * nth + 1
}

/// The headers of a call, compressed in the plainest way.
pub(crate) fn call_headers(path: &str) -> Vec<u8> {
    // `:method: POST`, `:scheme: http`.
    let mut block = vec![0x83, 0x86];
    literal(&mut block, ":path", path);
    literal(&mut block, ":authority", "localhost");
    literal(&mut block, "content-type", "application/grpc");
    literal(&mut block, "te", "trailers");
    block
}

/// A header that is not to be remembered.
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
