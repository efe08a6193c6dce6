//! Descriptions of devices: given with `--device`, kept by `ahead probe --save`.

use crate::fetch::{home, save, used};
use ahead_tests::rig::prelude::*;

const VOLUME: &str = "access_us = 1000\nbandwidth_mb_per_s = 125\nparallelism = 128\nrequest_us = 333\n";

#[test]
fn given_description_is_used_and_named() {
    let (_guard, home) = home();
    let (profile, data, device) = (home.join("p.ahead"), home.join("data"), home.join("volume.toml"));
    fs::write(&data, vec![1; 100_000]).unwrap();
    save(vec![used(&data)], &profile);
    fs::write(&device, VOLUME).unwrap();
    let account = ahead(["replay", "--json", "--device"]).args([&device, &profile]).done().json();
    let used = &account["devices"][0];
    assert_eq!((&used["source"], &used["request_us"]), (&"given".into(), &333.0.into()), "{account}");
    assert_eq!((&used["order"], &used["access_us"]), (&"by_first_use".into(), &1000.0.into()), "{account}");
    let run = ahead(["run", "-v", "--device"]).arg(&device).arg("-p").arg(&profile).args(["--", "true"]);
    run.ok().says(format!("(description {})", device.display()));
    // Otherwise the device has no description.
    let run = ahead(["run", "-v", "-p"]).arg(&profile).args(["--", "true"]).env("XDG_STATE_HOME", home).done();
    assert!(run.err.contains("(assumed)") || run.err.contains("; device 0:"), "{run}");
}

#[test]
fn description_with_a_mistake_names_its_line_and_never_fails_the_program() {
    let (_guard, home) = home();
    let (profile, device) = (home.join("p.ahead"), home.join("device.toml"));
    save(Vec::new(), &profile);
    fs::write(&device, "access_us = 1000\nparallelism = 0\n").unwrap();
    let line = "device.toml: line 2: parallelism must be a whole number from 1 to 65536";
    ahead(["replay", "--device"]).arg(&device).arg(&profile).fails(1).says(line);
    let run = ahead(["run", "--device"]);
    run.arg(&device).arg("-p").arg(&profile).args(["--", "sh", "-c", "exit 3"]).fails(3).says(line);
    let missing = home.join("missing");
    ahead(["replay", "--device"]).arg(missing).arg(&profile).fails(1).says("missing: ");
}

#[test]
fn device_without_an_identity_is_refused_before_the_work() {
    let why = ["neither a serial number nor a file system with a UUID"];
    ahead(["probe", "--save", "/proc"]).fails(1).says_all(&why);
    ahead(["probe", "--save", "--only", "disk", "/proc"]).fails(2);
}
