//! Byte sizes as people write them: `512MiB`, `1GiB`, `4096`. Binary units only, so that no size is ambiguous.

const UNITS: [(&str, u64); 5] = [("KiB", 1 << 10), ("MiB", 1 << 20), ("GiB", 1 << 30), ("TiB", 1 << 40), ("B", 1)];

pub fn parse(text: &str) -> Result<u64, String> {
    let (digits, unit) = UNITS
        .iter()
        .find_map(|&(name, unit)| text.strip_suffix(name).map(|digits| (digits, unit)))
        .unwrap_or((text, 1));
    // Not `u64::from_str` alone: it takes a leading plus.
    if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_digit()) {
        return Err(format!("'{text}' is not a size (such as 512MiB, 1GiB or 4096)"));
    }
    digits
        .parse::<u64>()
        .ok()
        .and_then(|count| count.checked_mul(unit))
        // No process can map more than that, and it leaves room to add three of them up.
        .filter(|&bytes| bytes <= 1 << 60)
        .ok_or_else(|| format!("'{text}' is too large"))
}

#[cfg(test)]
mod tests {
    use super::parse;

    #[test]
    fn sizes() {
        assert_eq!(parse("0"), Ok(0));
        assert_eq!(parse("4096"), Ok(4096));
        assert_eq!(parse("12B"), Ok(12));
        assert_eq!(parse("3KiB"), Ok(3072));
        assert_eq!(parse("512MiB"), Ok(512 << 20));
        assert_eq!(parse("1GiB"), Ok(1 << 30));
        assert_eq!(parse("1048576TiB"), Ok(1 << 60));
    }

    #[test]
    fn nonsense() {
        for text in ["", "MiB", "-1", "+1", "1.5GiB", "1 GiB", "1MB", "1mib", "0x10", "1GiBB", "one", "١"] {
            assert!(parse(text).unwrap_err().contains("is not a size"), "{text}");
        }
    }

    #[test]
    fn overflow() {
        for text in ["1048577TiB", "18446744073709551615", "18446744073709551616", "99999999999999999999GiB"] {
            assert!(parse(text).unwrap_err().contains("too large"), "{text}");
        }
    }
}
