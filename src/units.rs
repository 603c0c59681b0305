//! Quantities as people write them and as we print them: bytes inside, GiB on the outside.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// Bytes in a GiB.
pub const GIB: f64 = 1024.0 * 1024.0 * 1024.0;

/// A number of bytes. Parses `24GiB`, `0.5 GB`, `6.7e9`, `512m`, and prints in binary units.
///
/// `GiB`/`Gi` is 2^30, `GB` is 10^9; a bare letter (`24g`) is binary, as Docker reads it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Bytes(pub u64);

impl Bytes {
    /// As Docker and Compose read a size: of `16gb`, `16GB` and `16g`, each is 16 GiB.
    ///
    /// # Errors
    /// It is not a size.
    pub fn parse_binary(text: &str) -> Result<Bytes, ParseBytesError> {
        let unit = |t: &&str| t.ends_with(|c: char| c.is_ascii_alphabetic());
        let short = text.trim().strip_suffix(['b', 'B']).filter(unit);
        short.unwrap_or(text).parse()
    }

    /// As Kubernetes reads a quantity: `2Gi` are powers of 1024, `20G` of 1000.
    ///
    /// # Errors
    /// It is not a size.
    pub fn parse_quantity(text: &str) -> Result<Bytes, ParseBytesError> {
        if text.ends_with(['k', 'M', 'G', 'T']) {
            return format!("{text}b").parse();
        }
        text.parse()
    }
}

/// Bytes as GiB, unrounded. Exact for everything a host can hold.
pub fn to_gib(bytes: u64) -> f64 {
    bytes as f64 / GIB
}

/// Signed bytes as GiB, unrounded.
pub fn gib_signed(bytes: i64) -> f64 {
    bytes as f64 / GIB
}

/// A text that is not a valid size.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("invalid size `{0}`: write a number with an optional unit, such as 24GiB, 512MiB or 6.7e9")]
pub struct ParseBytesError(String);

impl FromStr for Bytes {
    type Err = ParseBytesError;

    fn from_str(s: &str) -> Result<Self, Self::Err> {
        let bad = || ParseBytesError(s.to_owned());
        let t = s.trim();
        let unit_at = t
            .char_indices()
            // The `e` of 6.7e9 belongs to the number; the E of 2EiB does not.
            .find(|&(i, c)| {
                let exponent = c == 'e'
                    && t[i + 1..].starts_with(|n: char| n.is_ascii_digit() || n == '+' || n == '-');
                c.is_alphabetic() && !exponent
            })
            .map_or(t.len(), |(i, _)| i);
        let number: f64 = t[..unit_at].trim().parse().map_err(|_| bad())?;
        let factor: f64 = match t[unit_at..].trim().to_ascii_lowercase().as_str() {
            "" | "b" => 1.0,
            "k" | "kib" | "ki" => 1024.0,
            "m" | "mib" | "mi" => 1024.0 * 1024.0,
            "g" | "gib" | "gi" => GIB,
            "t" | "tib" | "ti" => GIB * 1024.0,
            "kb" => 1e3,
            "mb" => 1e6,
            "gb" => 1e9,
            "tb" => 1e12,
            _ => return Err(bad()),
        };
        let bytes = number * factor;
        if !bytes.is_finite() || bytes < 0.0 || bytes >= u64::MAX as f64 {
            return Err(bad());
        }
        // As Docker: no byte is added.
        Ok(Bytes(bytes as u64))
    }
}

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&signed_text(self.0 as i128))
    }
}

/// Bytes with the largest binary unit that leaves at least one whole, two decimals.
pub fn signed_text(bytes: i128) -> String {
    let magnitude = bytes.unsigned_abs() as f64;
    let sign = if bytes < 0 { "-" } else { "" };
    let (value, unit) = match magnitude {
        m if m >= GIB * 1024.0 => (m / GIB / 1024.0, "TiB"),
        m if m >= GIB => (m / GIB, "GiB"),
        m if m >= 1024.0 * 1024.0 => (m / 1024.0 / 1024.0, "MiB"),
        m if m >= 1024.0 => (m / 1024.0, "KiB"),
        m => return format!("{sign}{m} B"),
    };
    format!("{sign}{value:.2} {unit}")
}

/// The longest time that can be asked for.
const LONGEST: Duration = Duration::from_secs(365 * 24 * 3600);

/// `100ms`, `2s`, `1h 30m`; a bare number is seconds.
///
///
/// # Errors
///
/// An invalid duration, in a sentence.
pub fn parse_duration(text: &str) -> Result<Duration, String> {
    let time = match text.trim().parse::<f64>() {
        Ok(seconds) => Duration::try_from_secs_f64(seconds).map_err(|e| e.to_string())?,
        Err(_) => {
            let signed: jiff::SignedDuration = text.parse().map_err(|_| {
                format!("invalid duration `{text}`: write it as 100ms, 2s or 1h30m")
            })?;
            Duration::try_from(signed).map_err(|_| format!("`{text}` is negative"))?
        }
    };
    // Larger values would overflow in sums with the clock.
    if time > LONGEST {
        return Err("must be 365 days or less".into());
    }
    Ok(time)
}

/// A length of time in which something can happen.
///
/// # Errors
/// What [`parse_duration`] refuses, and 0.
pub fn some_time(text: &str) -> Result<Duration, String> {
    match parse_duration(text)? {
        Duration::ZERO => Err("must be above 0".into()),
        time => Ok(time),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_as_people_write_them() {
        for (text, bytes) in [
            ("24GiB", 24 << 30),
            ("24g", 24 << 30),
            ("0.5 GB", 500_000_000),
            ("6.7e9", 6_700_000_000),
            ("512 MiB", 512 << 20),
            ("7", 7),
            ("1kb", 1000),
        ] {
            assert_eq!(text.parse(), Ok(Bytes(bytes)), "{text}");
        }
        for text in ["", "GiB", "-1", "12 parsecs", "1e400", "nan", "inf", "é"] {
            assert!(text.parse::<Bytes>().is_err(), "{text}");
        }
    }

    #[test]
    fn docker_and_kubernetes_read_units_of_their_own() {
        for (text, bytes) in [
            ("16gb", 16 << 30),
            ("16G", 16 << 30),
            ("64b", 64),
            ("1gib", 1 << 30),
        ] {
            assert_eq!(Bytes::parse_binary(text), Ok(Bytes(bytes)), "{text}");
        }
        for (text, bytes) in [
            ("2Gi", 2 << 30),
            ("20G", 20_000_000_000),
            ("1500k", 1_500_000),
            ("7", 7),
        ] {
            assert_eq!(Bytes::parse_quantity(text), Ok(Bytes(bytes)), "{text}");
        }
    }

    #[test]
    fn times_are_read_as_people_write_them() {
        assert_eq!(parse_duration("100ms"), Ok(Duration::from_millis(100)));
        assert_eq!(parse_duration("1h30m"), Ok(Duration::from_secs(5400)));
        assert_eq!(parse_duration("2.5"), Ok(Duration::from_millis(2500)));
        for bad in [
            "",
            "-1s",
            "-3",
            "soon",
            "nan",
            "1e999",
            "9223372036854775807s",
            "1e12",
        ] {
            assert!(parse_duration(bad).is_err(), "{bad}");
        }
        assert!(some_time("0s").is_err());
    }

    #[test]
    fn sizes_print_in_binary_units() {
        assert_eq!(Bytes(0).to_string(), "0 B");
        assert_eq!(Bytes(1536 << 20).to_string(), "1.50 GiB");
        assert_eq!(signed_text(-(128 << 20)), "-128.00 MiB");
    }
}
