//! Compiles the BPF programs with clang into the objects that the crate embeds, and the objects that its tests read (`layout_…`).

use libbpf_cargo::SkeletonBuilder;
use std::env;
use std::path::PathBuf;

const SOURCES: [&str; 6] = ["ahead", "arrivals", "decisions", "evictions", "layout_decisions", "layout_events"];

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
    }
}
