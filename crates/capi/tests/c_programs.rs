//! The programs in examples/c: they build without warnings as C11 and as C++17, with the shared and with the static library, and run.

use std::path::Path;
use std::process::Command;

/// Programs that the tests need.
const TOOLS: [&str; 5] = ["make", "cc", "c++", "pkg-config", "nm"];

fn is_installed(tool: &str) -> bool {
    Command::new(tool).arg("--version").output().is_ok_and(|output| output.status.success())
}

#[test]
fn c_and_cpp_programs_build_and_run() {
    if let Some(missing) = TOOLS.iter().find(|tool| !is_installed(tool)) {
        println!("skipped: {missing} is not installed");
        return;
    }
    let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/c");
    // make allows no space in a target's name, and the clone's path may have one.
    let root = examples.join("../..").canonicalize().unwrap();
    let build = Path::new(env!("CARGO_TARGET_TMPDIR")).join("examples-c");
    let build = build.strip_prefix(root).map_or(build.clone(), |below| Path::new("../..").join(below));
    let build = format!("BUILD={}", build.display());
    let mut make = Command::new("make");
    // This test may run below another make, whose flags are not for this one.
    make.env_remove("MAKEFLAGS").env_remove("MFLAGS").env_remove("MAKELEVEL");
    let output = make.arg("--no-print-directory").arg("-C").arg(examples).args(["test", &build]).output().unwrap();
    let (out, errors) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{out}{errors}");
    for line in out.lines().filter(|line| line.starts_with("skipped")) {
        println!("{line}");
    }
    assert_eq!(out.lines().last(), Some("ok"), "{out}{errors}");
}
