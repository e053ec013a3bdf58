//! Reads the names and the validity of a certificate.
//!
//! rustls verifies certificates, but does not expose their content, and an X.509 library brings a dozen crates. This
//! parser reads certificates that rustls has verified, and those in the operator's own files.

use std::{
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

/// DER tags.
mod tag {
    pub(super) const BOOLEAN: u8 = 0x01;
    pub(super) const INTEGER: u8 = 0x02;
    pub(super) const OCTETS: u8 = 0x04;
    pub(super) const OID: u8 = 0x06;
    pub(super) const UTF8: u8 = 0x0c;
    pub(super) const PRINTABLE: u8 = 0x13;
    pub(super) const IA5: u8 = 0x16;
    pub(super) const UTC_TIME: u8 = 0x17;
    pub(super) const GENERALIZED_TIME: u8 = 0x18;
    pub(super) const SEQUENCE: u8 = 0x30;
    pub(super) const SET: u8 = 0x31;
    /// A DNS name in the subject alternative names.
    pub(super) const DNS: u8 = 0x82;
    pub(super) const URI: u8 = 0x86;
    /// An IP address in the subject alternative names.
    pub(super) const IP: u8 = 0x87;
    pub(super) const VERSION: u8 = 0xa0;
    pub(super) const EXTENSIONS: u8 = 0xa3;
}

/// 2.5.4.3
const COMMON_NAME: &[u8] = &[0x55, 0x04, 0x03];
/// 2.5.29.17
const ALTERNATIVE_NAMES: &[u8] = &[0x55, 0x1d, 0x11];

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("malformed X.509 certificate")]
pub struct MalformedCertificate;

/// The content of a certificate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Description {
    /// URIs in the subject alternative names.
    pub uris: Vec<String>,
    /// DNS names in the subject alternative names. The first label may be `*`.
    pub dns: Vec<String>,
    /// IP addresses in the subject alternative names.
    pub addresses: Vec<IpAddr>,
    /// The common name of the subject.
    pub common_name: Option<String>,
    /// The common name of the issuer.
    pub issuer: Option<String>,
    pub from: SystemTime,
    pub until: SystemTime,
}

/// Reads a DER certificate without verifying it.
pub fn describe(der: &[u8]) -> Result<Description, MalformedCertificate> {
    read(der).ok_or(MalformedCertificate)
}

/// Formats a time as in RFC 3339, between the years 1970 and 9999.
pub(crate) fn moment(time: SystemTime) -> String {
    /// The first second of the year 10000.
    const BEYOND: u64 = 253_402_300_800;
    match time.duration_since(UNIX_EPOCH) {
        Ok(since) if since.as_secs() < BEYOND => humantime::format_rfc3339_seconds(time).to_string(),
        Ok(_) => "a time after the year 9999".to_owned(),
        Err(_) => "a time before 1970".to_owned(),
    }
}

fn read(der: &[u8]) -> Option<Description> {
    let mut body = Der(Der(Der(der).expect(tag::SEQUENCE)?).expect(tag::SEQUENCE)?);
    body.optional(tag::VERSION);
    body.expect(tag::INTEGER)?;
    body.expect(tag::SEQUENCE)?;
    let issuer = common_name(body.expect(tag::SEQUENCE)?)?;
    let mut validity = Der(body.expect(tag::SEQUENCE)?);
    let (from, until) = (validity.time()?, validity.time()?);
    let common_name = common_name(body.expect(tag::SEQUENCE)?)?;
    let mut description =
        Description { uris: Vec::new(), dns: Vec::new(), addresses: Vec::new(), common_name, issuer, from, until };
    while let Some((kind, content)) = body.next() {
        if kind == tag::EXTENSIONS {
            description.read_extensions(content)?;
        }
    }
    Some(description)
}

impl Description {
    fn read_extensions(&mut self, extensions: &[u8]) -> Option<()> {
        let mut extensions = Der(Der(extensions).expect(tag::SEQUENCE)?);
        while !extensions.0.is_empty() {
            let mut extension = Der(extensions.expect(tag::SEQUENCE)?);
            let oid = extension.expect(tag::OID)?;
            extension.optional(tag::BOOLEAN);
            let value = extension.expect(tag::OCTETS)?;
            if oid == ALTERNATIVE_NAMES {
                self.read_names(value)?;
            }
        }
        Some(())
    }

    fn read_names(&mut self, names: &[u8]) -> Option<()> {
        let mut names = Der(Der(names).expect(tag::SEQUENCE)?);
        while !names.0.is_empty() {
            match names.next()? {
                (tag::DNS, name) => self.dns.extend(text(name)),
                (tag::URI, uri) => self.uris.extend(text(uri)),
                (tag::IP, address) => self.addresses.extend(ip(address)),
                _ => {}
            }
        }
        Some(())
    }
}

/// The last and most specific common name of a distinguished name. The outer `None` means that it is malformed.
fn common_name(name: &[u8]) -> Option<Option<String>> {
    let (mut parts, mut found) = (Der(name), None);
    while !parts.0.is_empty() {
        let mut attributes = Der(parts.expect(tag::SET)?);
        while !attributes.0.is_empty() {
            let mut attribute = Der(attributes.expect(tag::SEQUENCE)?);
            let oid = attribute.expect(tag::OID)?;
            match attribute.next()? {
                (tag::UTF8 | tag::PRINTABLE | tag::IA5, value) if oid == COMMON_NAME => found = text(value),
                _ => {}
            }
        }
    }
    Some(found)
}

fn text(bytes: &[u8]) -> Option<String> {
    std::str::from_utf8(bytes).ok().map(str::to_owned)
}

fn ip(bytes: &[u8]) -> Option<IpAddr> {
    let v4 = || <[u8; 4]>::try_from(bytes).ok().map(|octets| Ipv4Addr::from(octets).into());
    let v6 = || <[u8; 16]>::try_from(bytes).ok().map(|octets| Ipv6Addr::from(octets).into());
    v4().or_else(v6)
}

/// The rest of a sequence of DER values.
struct Der<'a>(&'a [u8]);

impl<'a> Der<'a> {
    /// The next value: tag and content.
    fn next(&mut self) -> Option<(u8, &'a [u8])> {
        let (&[tag, first], rest) = self.0.split_first_chunk::<2>()?;
        let (length, rest) = match first {
            0..=0x7f => (usize::from(first), rest),
            // The number of length bytes that follow. Four would be longer than any certificate.
            0x81..=0x83 => {
                let (bytes, rest) = rest.split_at_checked(usize::from(first - 0x80))?;
                (bytes.iter().fold(0, |length, byte| length << 8 | usize::from(*byte)), rest)
            }
            _ => return None,
        };
        let (content, rest) = rest.split_at_checked(length)?;
        self.0 = rest;
        Some((tag, content))
    }

    fn expect(&mut self, tag: u8) -> Option<&'a [u8]> {
        self.next().filter(|(found, _)| *found == tag).map(|(_, content)| content)
    }

    /// Skips an optional value.
    fn optional(&mut self, tag: u8) {
        if self.0.first() == Some(&tag) {
            self.next();
        }
    }

    fn time(&mut self) -> Option<SystemTime> {
        let (tag, text) = self.next()?;
        let digits = text.strip_suffix(b"Z")?;
        if !digits.iter().all(u8::is_ascii_digit) {
            return None;
        }
        let (year, rest) = match tag {
            tag::UTC_TIME if digits.len() == 12 => {
                let year = number(&digits[..2]);
                (year + if year < 50 { 2000 } else { 1900 }, &digits[2..])
            }
            tag::GENERALIZED_TIME if digits.len() == 14 => (number(&digits[..4]), &digits[4..]),
            _ => return None,
        };
        let field = |place: usize| number(&rest[place * 2..place * 2 + 2]);
        let (month, day) = (field(0), field(1));
        if !(1..=12).contains(&month) || !(1..=31).contains(&day) {
            return None;
        }
        let seconds = days_since_1970(year, month, day) * 86_400 + field(2) * 3_600 + field(3) * 60 + field(4);
        let length = Duration::from_secs(seconds.unsigned_abs());
        if seconds < 0 { UNIX_EPOCH.checked_sub(length) } else { UNIX_EPOCH.checked_add(length) }
    }
}

fn number(digits: &[u8]) -> i64 {
    digits.iter().fold(0, |number, digit| number * 10 + i64::from(digit - b'0'))
}

/// Days in the Gregorian calendar. Years begin in March here, so that the leap day is the last of its year.
fn days_since_1970(year: i64, month: i64, day: i64) -> i64 {
    let year = if month < 3 { year - 1 } else { year };
    let (era, of_era) = (year.div_euclid(400), year.rem_euclid(400));
    let of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719_468
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn time(tag: u8, text: &str) -> Option<u64> {
        let mut der = vec![tag, u8::try_from(text.len()).expect("short")];
        der.extend_from_slice(text.as_bytes());
        let time = Der(&der).time()?;
        Some(time.duration_since(UNIX_EPOCH).expect("after 1970").as_secs())
    }

    #[test]
    fn times_are_parsed() {
        assert_eq!(time(tag::UTC_TIME, "700101000000Z"), Some(0));
        assert_eq!(time(tag::UTC_TIME, "000229120000Z"), Some(951_825_600));
        assert_eq!(time(tag::GENERALIZED_TIME, "20380119031407Z"), Some(i32::MAX as u64));
        assert_eq!(time(tag::GENERALIZED_TIME, "21000301000000Z"), Some(4_107_542_400));
        for bad in ["700101000000", "7001010000Z", "701301000000Z", "70010a000000Z", "700100000000Z"] {
            assert_eq!(time(tag::UTC_TIME, bad), None, "{bad}");
        }
    }

    proptest! {
        #[test]
        fn no_bytes_make_the_parser_panic(
            place in 0usize..400, byte: u8, cut in 0usize..400, noise in proptest::collection::vec(any::<u8>(), 0..64)
        ) {
            let _ = describe(&noise);
            let key = rcgen::KeyPair::generate().expect("a key");
            let names = vec!["a.test".to_owned(), "10.0.0.1".to_owned()];
            let params = rcgen::CertificateParams::new(names).expect("names");
            let mut der = params.self_signed(&key).expect("a certificate").der().to_vec();
            let place = place % der.len();
            der[place] = byte;
            if let Ok(description) = describe(&der) {
                moment(description.from);
                moment(description.until);
            }
            der.truncate(cut);
            let _ = describe(&der);
        }
    }
}
