//! Sizes and times as users write them: `128K`, `4M`, `1G`; `8ms`, `2s`.

use std::time::Duration;

/// Parses `4096`, `128K`, `4M`, `1G`, `2T` (powers of 1024, with or without `B` or `iB`) into bytes.
///
/// Errors: a sentence for the user, with the text in it.
pub fn parse_size(text: &str) -> Result<u64, String> {
    let error = || format!("{text:?} is not a size; write a number with B, K, M, G or T, as in 128K or 4G");
    let trimmed = text.trim().trim_end_matches("iB").trim_end_matches('B');
    let (digits, shift) = match trimmed.char_indices().last().ok_or_else(error)? {
        (at, 'k' | 'K') => (&trimmed[..at], 10),
        (at, 'm' | 'M') => (&trimmed[..at], 20),
        (at, 'g' | 'G') => (&trimmed[..at], 30),
        (at, 't' | 'T') => (&trimmed[..at], 40),
        _ => (trimmed, 0),
    };
    let number: u64 = digits.trim().parse().map_err(|_| error())?;
    number.checked_mul(1 << shift).ok_or_else(error)
}

/// Parses a size as [`parse_size`] does, but refuses a bare number other than 0: it could mean bytes or KiB.
///
/// Errors: a sentence for the user, with the text in it.
pub fn parse_size_with_unit(text: &str) -> Result<u64, String> {
    let number = text.trim();
    if is_bare_number(number) {
        return Err(format!("{number:?} has no unit: write {number}K, or a size as in 128K or 4M"));
    }
    parse_size(number)
}

/// Parses a rate, `100MB/s` or `100M`, into bytes per second. The second may be left out, the unit of the size may not.
///
/// Errors: a sentence for the user, with the text in it.
pub fn parse_rate(text: &str) -> Result<u64, String> {
    let trimmed = text.trim();
    let size = trimmed.strip_suffix("/s").unwrap_or(trimmed);
    if is_bare_number(size) {
        return Err(format!("{text:?} has no unit: write {size}M/s, or a size per second as in 100MB/s"));
    }
    match parse_size(size) {
        Ok(bytes) if bytes > 0 => Ok(bytes),
        _ => Err(format!("{text:?} is not a bandwidth; write a size per second, as in 100MB/s")),
    }
}

/// Whether this is a number without a unit, and not 0.
fn is_bare_number(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_digit()) && text.bytes().any(|byte| byte != b'0')
}

/// Parses `250us`, `8ms`, `2s`, `1m`.
///
/// Errors: a sentence for the user, with the text in it.
pub fn parse_time(text: &str) -> Result<Duration, String> {
    let error = || format!("{text:?} is not a time; write a number with us, ms, s or m, as in 8ms or 30s");
    let trimmed = text.trim();
    let unit_at = trimmed.find(|c: char| c.is_ascii_alphabetic()).ok_or_else(error)?;
    let (digits, unit) = trimmed.split_at(unit_at);
    let unit_ns = match unit {
        "us" => 1_000,
        "ms" => 1_000_000,
        "s" => 1_000_000_000,
        "m" => 60_000_000_000,
        _ => return Err(error()),
    };
    times(digits.trim(), unit_ns).ok_or_else(error)
}

/// `1.5` times a unit, rounded down. Integers alone: a parser of floating-point numbers has tables of 10 KB. `None`: not a number, or too
/// large.
fn times(number: &str, unit_ns: u128) -> Option<Duration> {
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    if !digits(whole) || !digits(fraction) || number.len() < 1 + usize::from(number.contains('.')) {
        return None;
    }
    let whole: u64 = if whole.is_empty() { 0 } else { whole.parse().ok()? };
    // Each digit has a tenth of the weight of the one before it.
    let parts = fraction.bytes().scan(unit_ns * 1_000_000_000, |weight, digit| {
        *weight /= 10;
        Some(*weight * u128::from(digit - b'0'))
    });
    let all_ns = u128::from(whole) * unit_ns + parts.sum::<u128>() / 1_000_000_000;
    let seconds = u64::try_from(all_ns / 1_000_000_000).ok()?;
    Some(Duration::new(seconds, (all_ns % 1_000_000_000) as u32))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_powers_of_1024() {
        assert_eq!(parse_size("4096"), Ok(4096));
        assert_eq!(parse_size("128K"), Ok(131_072));
        assert_eq!(parse_size("4GiB"), Ok(4 << 30));
        for bad in ["", "K", "-1", "1.5M", "20000000T", "12Q"] {
            assert!(parse_size(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn sizes_of_flags_need_a_unit() {
        assert_eq!(parse_size_with_unit("4096K"), Ok(4 << 20));
        assert_eq!(parse_size_with_unit("4096B"), Ok(4096));
        assert_eq!(parse_size_with_unit("0"), Ok(0));
        let message = r#""4096" has no unit: write 4096K, or a size as in 128K or 4M"#;
        assert_eq!(parse_size_with_unit("4096"), Err(message.into()));
        for bad in ["", "K", "-1", "12Q"] {
            assert!(parse_size_with_unit(bad).unwrap_err().contains("is not a size"), "{bad}");
        }
    }

    #[test]
    fn rates_need_a_unit() {
        assert_eq!(parse_rate("100MB/s"), Ok(100 << 20));
        assert_eq!(parse_rate("100M"), Ok(100 << 20));
        for bare in ["100", "100/s"] {
            assert!(parse_rate(bare).unwrap_err().contains("has no unit: write 100M/s"), "{bare}");
        }
        for bad in ["", "0", "/s", "100MB/h", "-1M/s"] {
            assert!(parse_rate(bad).unwrap_err().contains("is not a bandwidth"), "{bad}");
        }
    }

    #[test]
    fn times_have_units() {
        assert_eq!(parse_time("8ms"), Ok(Duration::from_millis(8)));
        assert_eq!(parse_time("1.5s"), Ok(Duration::from_millis(1500)));
        assert_eq!(parse_time("0.000001s"), Ok(Duration::from_micros(1)));
        assert_eq!(parse_time("0.1m"), Ok(Duration::from_secs(6)));
        assert_eq!(
            (parse_time(".5ms"), parse_time("2.s")),
            (Ok(Duration::from_micros(500)), Ok(Duration::from_secs(2)))
        );
        assert_eq!(parse_time("18446744073709551615.5s"), Ok(Duration::new(u64::MAX, 500_000_000)));
        assert_eq!(parse_time("0.0015us"), Ok(Duration::from_nanos(1)));
        assert_eq!(parse_time("1.99999999999999999999999999999999999999999s"), Ok(Duration::from_nanos(1_999_999_999)));
        for bad in [
            "",
            "8",
            "ms",
            "-1s",
            "1e400s",
            "5 parsecs",
            ".s",
            "1.2.3s",
            "1,5s",
            "99999999999999999999s",
            "9999999999999999999m",
        ] {
            assert!(parse_time(bad).is_err(), "{bad}");
        }
    }
}
