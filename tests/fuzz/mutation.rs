//! Applies a script of changes to a seed.
//!
//! Random bytes are rarely a valid message. Small changes of a valid message reach the code behind the decoder.

/// Boundary values.
const NUMBERS: [u8; 8] = [0, 1, 0x7f, 0x80, 0xff, b'0', b'"', b'\n'];
/// Maximum length of a result.
const MOST: usize = 4096;

/// Applies the script to one of the seeds. An empty script returns the first seed.
pub(crate) fn mutated(seeds: &[Vec<u8>], script: &[u8]) -> Vec<u8> {
    let Some((first, mut script)) = script.split_first() else { return seeds.first().cloned().unwrap_or_default() };
    if *first == u8::MAX || seeds.is_empty() {
        return script.to_vec();
    }
    let mut bytes = seeds[usize::from(*first) % seeds.len()].clone();
    while let [change, at, by, rest @ ..] = script {
        script = rest;
        let place = if bytes.is_empty() { 0 } else { usize::from(*at) * bytes.len() / 256 };
        match change % 9 {
            0 => bytes.insert(place, *by),
            1 => bytes.truncate(place),
            2 => bytes.extend(bytes[place..].to_vec()),
            3 => bytes.extend_from_slice(&seeds[usize::from(*by) % seeds.len()]),
            _ if place == bytes.len() => bytes.push(*by),
            4 => bytes[place] = *by,
            5 => bytes[place] ^= 1 << (by % 8),
            6 => bytes[place] = NUMBERS[usize::from(*by) % NUMBERS.len()],
            7 => drop(bytes.remove(place)),
            _ => drop(bytes.drain(place..(place + usize::from(*by)).min(bytes.len()))),
        }
        bytes.truncate(MOST);
    }
    bytes
}
