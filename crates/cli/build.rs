//! Links `ahead` so that a cold start reads little of it. libelf, zlib and libgcc are linked statically where their archives are installed and
//! complete: a shared library costs three to four reads before the program runs. The functions that `ahead run` uses lie side by side, in the
//! order of `functions.order` and `functions.ld`, which `bench/coldstart/order` writes. Names that are not in the program are ignored, so that
//! an old list costs reads and nothing else.

mod archives;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

/// The functions of `ahead run`, by their names in the object file, which end in hashes.
const ORDER: &str = "functions.order";
/// The same functions without hashes, where that is unique: a linker script, which also fits a build with other hashes.
const PATTERNS: &str = "functions.ld";

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-changed=archives.rs");
    println!("cargo:rerun-if-changed={ORDER}");
    println!("cargo:rerun-if-changed={PATTERNS}");
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets it"));
    archives::link_statically(&out);
    if env::var("PROFILE").is_ok_and(|profile| profile == "release") {
        arrange(&out);
    }
}

/// The linker's arguments for a small program that starts with few reads, as far as they work here.
fn arrange(out: &Path) {
    let directory = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").expect("cargo sets it"));
    let arguments = [
        format!("-Wl,--symbol-ordering-file={},--no-warn-symbol-ordering", directory.join(ORDER).display()),
        format!("-Wl,-T,{}", directory.join(PATTERNS).display()),
        // One function instead of several with the same instructions.
        "-Wl,--icf=all".to_owned(),
        // A tenth of the space for the addresses that are set at the start.
        "-Wl,-z,pack-relative-relocs".to_owned(),
    ];
    for argument in arguments.iter().filter(|argument| links(out, argument)) {
        println!("cargo:rustc-link-arg-bins={argument}");
    }
}

/// Whether the linker accepts an argument (only lld knows an order of symbols), and the result runs: packed addresses need glibc 2.36.
fn links(out: &Path, argument: &str) -> bool {
    let source = out.join("trial.rs");
    if fs::write(&source, "fn main() {}\n").is_err() {
        return false;
    }
    let mut trial = Command::new(env::var_os("RUSTC").expect("cargo sets it"));
    trial.arg(&source).arg("-o").arg(out.join("trial")).arg("-C").arg(format!("link-arg={argument}"));
    trial.arg("--target").arg(env::var_os("TARGET").expect("cargo sets it"));
    if let Some(linker) = env::var_os("RUSTC_LINKER") {
        trial.arg("-C").arg(format!("linker={}", linker.to_string_lossy()));
    }
    let flags = env::var("CARGO_ENCODED_RUSTFLAGS").unwrap_or_default();
    trial.args(flags.split('\u{1f}').filter(|flag| !flag.is_empty()));
    [trial, Command::new(out.join("trial"))]
        .iter_mut()
        .all(|command| command.output().is_ok_and(|done| done.status.success()))
}
