//! Links `aheadd` as `ahead` ([`archives`]).

#[path = "../cli/archives.rs"]
mod archives;

use std::env;
use std::path::PathBuf;

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-changed=../cli/archives.rs");
    archives::link_statically(&PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets it")));
}
