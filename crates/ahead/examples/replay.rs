//! Records a program, and brings what it read into the page cache again: `cargo run -p ahead --example replay [-- CMD…]`.
//!
//! Recording needs root (BPF). Without a command the example reads a file that it makes beside its own program.

use ahead::{Command, Recorder, Replay, cold};
use std::ffi::OsString;
use std::io::ErrorKind;
use std::path::PathBuf;
use std::process::ExitCode;

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        // By convention the status of what is not permitted or not supported here.
        Err(ahead::Error::Sys(error)) if error.is_unavailable() => {
            eprintln!("replay: {error}");
            ExitCode::from(77)
        }
        Err(error) => {
            eprintln!("replay: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> ahead::Result<()> {
    let words: Vec<OsString> = std::env::args_os().skip(1).collect();
    let sample = Sample::new("replay-sample").map_err(|error| ahead::Error::io("make a file", error))?;
    let argv = match words.as_slice() {
        [] => vec!["cat".into(), sample.0.clone().into()],
        words => words.to_vec(),
    };
    let command = Command::new(argv).discard_output(true);
    let recording = Recorder::default().record(&command, None, &|notice| eprintln!("replay: {notice}"))?;
    let profile = recording.profile;
    println!("recorded: {} files, {} bytes", profile.files.len(), profile.data_bytes());

    // What a restart of the machine, or other programs, would do.
    cold::evict_file(&sample.0)?;
    let account = Replay::new(profile).wait(true).start()?.finish();
    println!(
        "prefetched: {} bytes in {} requests; {} bytes were cached already",
        account.issued_bytes, account.requests, account.already_resident_bytes
    );
    Ok(())
}

/// A file beside this program, which is removed at the end.
struct Sample(PathBuf);

impl Sample {
    fn new(name: &str) -> std::io::Result<Sample> {
        let path = std::env::current_exe()?.with_file_name(format!("{name}-{}", std::process::id()));
        std::fs::write(&path, vec![7; 4 << 20])?;
        Ok(Sample(path))
    }
}

impl Drop for Sample {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_file(&self.0)
            && error.kind() != ErrorKind::NotFound
        {
            eprintln!("replay: {}: {error}", self.0.display());
        }
    }
}
