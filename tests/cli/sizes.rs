//! Sizes, rates and times in flags: the same units everywhere.

use ahead_tests::rig::prelude::*;

/// Regression: 4096 was 4 KiB for most flags and 4 MiB for `tune --kb`.
#[test]
fn a_number_without_a_unit_is_refused() {
    for arguments in [
        &["run", "--budget", "4096", "--", "true"][..],
        &["replay", "p.ahead", "--budget", "4096"],
        &["disk", "create", "x.img", "--model", "hdd", "--size", "4096"],
        &["bench", "streams", "--size", "4096"],
        &["bench", "streams", "--block", "4096"],
        &["probe", ".", "--size", "4096"],
        &["sim", "replay", "p.ahead", "--disk", "hdd", "--size", "4096"],
        &["sim", "replay", "p.ahead", "--disk", "hdd", "--budget", "4096"],
        &["sim", "sweep", "S.toml", "--window", "4096"],
    ] {
        let message = r#""4096" has no unit: write 4096K, or a size as in 128K or 4M"#;
        ahead(arguments).fails(2).out_is("").says(message);
    }
    let rate = ["tune", "--plan", "--access-time", "8ms", "--bandwidth", "100"];
    ahead(rate).fails(2).out_is("").says(r#""100" has no unit: write 100M/s"#);
    let stall = ["disk", "fault", "x", "--stall", "80"];
    ahead(stall).fails(2).out_is("").says(r#""80" is not a time"#);
}
