//! Formats numbers for people.

/// `532 B`, `1.5 MiB`.
pub fn size(bytes: u64) -> String {
    const UNITS: [&str; 7] = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    let mut value = bytes as f64;
    let mut unit = 0;
    while value >= 1024.0 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    if unit == 0 { format!("{bytes} B") } else { format!("{value:.1} {}", UNITS[unit]) }
}

/// `873 µs`, `12.3 ms`, `4.21 s`, `3 min 20 s`.
pub fn time(microseconds: u64) -> String {
    let seconds = microseconds as f64 / 1e6;
    match microseconds {
        0..1_000 => format!("{microseconds} µs"),
        1_000..1_000_000 => format!("{:.1} ms", seconds * 1e3),
        1_000_000..120_000_000 => format!("{seconds:.2} s"),
        _ => format!("{} min {} s", microseconds / 60_000_000, microseconds / 1_000_000 % 60),
    }
}

/// `1 file`, `3,204 files`.
pub fn count(number: u64, one: &str, many: &str) -> String {
    format!("{} {}", grouped(number), if number == 1 { one } else { many })
}

/// `3,204`.
pub fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// `43 %`. A part above 0 and below the whole is never rounded to 0 % or 100 %.
pub fn share(part: u64, whole: u64) -> String {
    if whole == 0 {
        return "–".into();
    }
    let percent = part as f64 * 100.0 / whole as f64;
    match percent {
        _ if part == 0 => "0 %".into(),
        _ if percent < 1.0 => "< 1 %".into(),
        _ if percent > 99.0 && part < whole => "> 99 %".into(),
        _ => format!("{percent:.0} %"),
    }
}

/// `2026-07-30 14:05 UTC` from seconds since 1970.
pub fn date(unix_s: u64) -> String {
    // Days are counted from 1 March in eras of 400 years, so that the leap day is the last day of a year.
    let days = (unix_s / 86_400) as i64 + 719_468;
    let (era, day_of_era) = (days.div_euclid(146_097), days.rem_euclid(146_097));
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    let (hour, minute) = (unix_s / 3600 % 24, unix_s / 60 % 60);
    format!("{year:04}-{month:02}-{day:02} {hour:02}:{minute:02} UTC")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes() {
        assert_eq!(size(0), "0 B");
        assert_eq!(size(1023), "1023 B");
        assert_eq!(size(1 << 20), "1.0 MiB");
        assert_eq!(size(u64::MAX), "16.0 EiB");
    }

    #[test]
    fn times() {
        assert_eq!(time(873), "873 µs");
        assert_eq!(time(12_345), "12.3 ms");
        assert_eq!(time(4_214_000), "4.21 s");
        assert_eq!(time(200_000_000), "3 min 20 s");
    }

    #[test]
    fn counts_and_shares() {
        assert_eq!(count(1, "file", "files"), "1 file");
        assert_eq!(count(1_234_567, "file", "files"), "1,234,567 files");
        assert_eq!(grouped(100), "100");
        assert_eq!(share(0, 10), "0 %");
        assert_eq!(share(1, 1000), "< 1 %");
        assert_eq!(share(999, 1000), "> 99 %");
        assert_eq!(share(1000, 1000), "100 %");
        assert_eq!(share(0, 0), "–");
    }

    #[test]
    fn dates() {
        assert_eq!(date(0), "1970-01-01 00:00 UTC");
        assert_eq!(date(951_827_696), "2000-02-29 12:34 UTC");
        assert_eq!(date(4_102_444_799), "2099-12-31 23:59 UTC");
        assert!(!date(i64::MAX as u64).is_empty());
    }
}
