//! Compares two ways of reading a file that is not cached: `cargo run -p ahead --example compare [-- FILE]`.
//!
//! Needs no privilege: the file's own pages are evicted before each run. Without a file the example makes one beside its own program.

use ahead::compare::Closures;
use ahead::{Comparison, Error, Replay, cold};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Pages that are read, and the distance between them, bytes. The distance keeps the kernel from reading ahead.
const PAGE_BYTES: u64 = 4096;
const STRIDE_BYTES: u64 = 64 << 10;

fn main() -> ExitCode {
    let named = std::env::args_os().nth(1).map(PathBuf::from);
    let result = match &named {
        Some(path) => compare(path),
        None => with_sample(compare),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("compare: {error}");
            ExitCode::FAILURE
        }
    }
}

fn compare(path: &Path) -> ahead::Result<()> {
    let evict = || cold::evict_file(path);
    let read = || read_pages(path);
    let prefetch_and_read = || {
        let pages = offsets(path)?.map(|offset| (path.to_owned(), offset..offset + PAGE_BYTES));
        let running = Replay::of_ranges(pages)?.start()?;
        read_pages(path)?;
        running.finish();
        Ok(())
    };
    let mut ways = Closures::new().add("page by page", evict, read).add("with prefetch", evict, prefetch_and_read);
    let variants = ways.variants();
    for (variant, measured) in variants.iter().zip(Comparison::new(5).measure(&mut ways, &variants, &mut |_| {})?) {
        let (name, spread) = (ways.name(*variant), measured.spread);
        println!("{name:14} {:.4} s ({:.4} to {:.4})", spread.median, spread.min, spread.max);
    }
    Ok(())
}

fn offsets(path: &Path) -> ahead::Result<impl Iterator<Item = u64> + use<>> {
    let size = std::fs::metadata(path).map_err(|error| Error::io("stat", error))?.len();
    Ok((0..size).step_by(STRIDE_BYTES as usize))
}

fn read_pages(path: &Path) -> ahead::Result<()> {
    let failed = |error| Error::io("read", error);
    let file = File::open(path).map_err(failed)?;
    let mut page = [0; PAGE_BYTES as usize];
    for offset in offsets(path)? {
        file.read_at(&mut page, offset).map_err(failed)?;
    }
    Ok(())
}

fn with_sample(work: impl FnOnce(&Path) -> ahead::Result<()>) -> ahead::Result<()> {
    let failed = |error| Error::io("make a file", error);
    let path =
        std::env::current_exe().map_err(failed)?.with_file_name(format!("compare-sample-{}", std::process::id()));
    std::fs::write(&path, vec![7; 16 << 20]).map_err(failed)?;
    let result = work(&path);
    std::fs::remove_file(&path).map_err(failed)?;
    result
}
