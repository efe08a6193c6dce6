//! Compiles the BPF programs with clang into the objects that the crate embeds, and the objects that its tests read (`layout_…`).
//! The crate embeds them compressed (`NAME.bpf.deflate`): each tracepoint repeats the same instructions, so a fifth remains.

use libbpf_cargo::SkeletonBuilder;
use miniz_oxide::deflate::compress_to_vec;
use std::path::PathBuf;
use std::{env, fs};

const SOURCES: [&str; 12] = [
    "ahead",
    "arrivals",
    "cached",
    "counters",
    "decisions",
    "evictions",
    "launches",
    "layout_counters",
    "layout_decisions",
    "layout_events",
    "progress",
    "state",
];
/// The highest level of compression that zlib has, too.
const LEVEL: u8 = 9;

fn main() {
    println!("cargo:rerun-if-changed=src/bpf");
    println!("cargo:rerun-if-env-changed=CLANG");
    let directory = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    for name in SOURCES {
        let source = format!("src/bpf/{name}.bpf.c");
        let object = directory.join(format!("{name}.bpf.o"));
        let mut builder = SkeletonBuilder::new();
        // v3: atomic operations that return the old value (Linux 5.12).
        builder.source(&source).obj(&object).clang_args(["-mcpu=v3", "-Wall", "-Werror", "-Wno-missing-declarations"]);
        if let Some(clang) = env::var_os("CLANG") {
            builder.clang(clang);
        }
        if let Err(error) = builder.build() {
            panic!("cannot compile {source} (clang is needed: apt-get install clang libelf-dev zlib1g-dev): {error:#}");
        }
        let compiled = fs::read(&object).expect("clang has written the object");
        let bytes = u32::try_from(compiled.len()).expect("an object is smaller than 4 GiB");
        let compressed = [bytes.to_le_bytes().as_slice(), &compress_to_vec(&compiled, LEVEL)].concat();
        fs::write(directory.join(format!("{name}.bpf.deflate")), compressed)
            .expect("the directory of this build is writable");
    }
}
