//! Prefetches a list of byte ranges: `cargo run -p ahead --example ranges -- FILE OFFSET LENGTH [FILE OFFSET LENGTH …]`.
//!
//! Needs no privilege. A database does this with the pages that its query plan names.

use ahead::Replay;
use std::ops::Range;
use std::path::PathBuf;
use std::process::ExitCode;

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let Some(ranges) = parse(&words).filter(|ranges| !ranges.is_empty()) else {
        eprintln!("usage: ranges FILE OFFSET LENGTH [FILE OFFSET LENGTH ...] (bytes)");
        return ExitCode::from(2);
    };
    let fetched = Replay::of_ranges(ranges).and_then(|prefetcher| prefetcher.wait(true).start());
    match fetched.map(|running| running.finish()) {
        Ok(account) => {
            let (issued, resident) = (account.issued_bytes, account.already_resident_bytes);
            println!(
                "prefetched: {issued} bytes in {} requests; {resident} bytes were cached already",
                account.requests
            );
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("ranges: {error}");
            ExitCode::FAILURE
        }
    }
}

fn parse(words: &[String]) -> Option<Vec<(PathBuf, Range<u64>)>> {
    let range = |words: &[String]| {
        let [file, offset, length] = words else { return None };
        let (offset, length): (u64, u64) = (offset.parse().ok()?, length.parse().ok()?);
        Some((PathBuf::from(file), offset..offset.checked_add(length)?))
    };
    words.chunks(3).map(range).collect()
}
