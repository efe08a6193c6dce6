//! Models as TOML: a written model is read back, and errors name the mistake.

use ahead_device::Model;
use proptest::prelude::*;

const HDD: &str = "kind = \"hdd\"\nrpm = 5400\nouter_mb_per_s = 100\naccess_ms = 12\n";

fn error(text: &str) -> String {
    Model::from_toml(text).unwrap_err().to_string()
}

#[test]
fn every_builtin_survives_a_round_trip() {
    for name in Model::BUILTIN.into_iter().chain(Model::PAPERS) {
        let model = Model::builtin(name).unwrap();
        assert_eq!(model.name(), name);
        assert!(!model.description().is_empty());
        assert_eq!(Model::from_toml(&model.to_toml()).unwrap(), model);
        assert!(model.fastest_ns(4096) > 0);
        assert_eq!(model.rotational(), !["ssd", "nvme", "emmc", "cloud"].contains(&name));
    }
    assert!(Model::builtin("floppy").is_none());
}

#[test]
fn custom_model_may_omit_optional_fields() {
    let model = Model::from_toml(HDD).unwrap();
    assert_eq!((model.channels(), model.scheduler(), model.nr_requests()), (1, "mq-deadline", 64));
    assert_eq!(model.bandwidth_bytes_per_s(), 100e6);
    assert_eq!(Model::from_toml(&model.to_toml()).unwrap(), model);
}

/// Regression: a volume with 128 requests in service had a queue of 64.
#[test]
fn queue_has_room_for_all_requests_in_service() {
    let cloud = "kind = \"cloud\"\nlatency_us = 500\niops = 3000\nmb_per_s = 100\n";
    for (more, nr_requests) in
        [("", 128), ("outstanding = 256\n", 256), ("outstanding = 2\n", 64), ("nr_requests = 32\n", 32)]
    {
        let model = Model::from_toml(&format!("{cloud}{more}")).unwrap();
        assert_eq!(model.nr_requests(), nr_requests, "{more}");
        assert_eq!(Model::from_toml(&model.to_toml()).unwrap(), model);
    }
}

#[test]
fn mistakes_are_named_by_line_and_field() {
    for (wrong, message) in [
        ("", "line 1: kind must be one of hdd, flash, cloud"),
        ("\nkind = \"tape\"", "line 2: kind must be one of hdd, flash, cloud"),
        ("kind = \"hdd\"\nrpm = ", "line 2: not TOML"),
        ("kind = \"hdd\"\nrpm = 5400", "line 1: outer_mb_per_s is missing; it must be a number from 0.1 to 2000"),
        ("kind = \"hdd\"\nrpm = 0", "line 2: rpm must be a number from 1000 to 30000"),
        ("kind = \"hdd\"\nrpm = -7200", "line 2: rpm must be a number from 1000 to 30000"),
        ("kind = \"hdd\"\nrpm = nan", "line 2: rpm must be a number from 1000 to 30000"),
        ("kind = \"hdd\"\nrpm = inf", "line 2: rpm must be a number from 1000 to 30000"),
        ("kind = \"hdd\"\nrpm = 99999999999999999999", "line 2: rpm must be a number from 1000 to 30000"),
        ("kind = \"hdd\"\nrpm = \"fast\"", "line 2: rpm must be a number from 1000 to 30000"),
        ("kind = \"hdd\"\n\nspeed = 3", "line 3: unknown field \"speed\"; the fields of kind hdd are name,"),
        ("kind = \"flash\"\nchannels = 1.5", "line 2: channels must be a whole number from 1 to 1024"),
        ("kind = \"cloud\"\nscheduler = \"cfq\"", "line 2: scheduler must be one of none, mq-deadline, bfq, kyber"),
        ("kind = \"cloud\"\nname = \"a\\nb\"", "line 2: name must be one line of text"),
        ("kind = \"cloud\"\nname = \"a\"\nname = \"b\"", "line 3: not TOML"),
    ] {
        let error = error(wrong);
        assert!(error.starts_with(message), "{wrong:?} gave {error:?}, expected {message:?}");
        assert!(!error.contains('\n'), "{error}");
    }
}

#[test]
fn figures_that_contradict_each_other_are_refused() {
    for (more, part) in [
        ("inner_mb_per_s = 200", "line 5: inner_mb_per_s must not be above"),
        ("interface_mb_per_s = 50", "interface_mb_per_s must not be below"),
        ("seek_track_ms = 1", "either access_ms, or seek_track_ms"),
        ("read_on_kb = 64\nhit_read_on_kb = 65", "line 6: hit_read_on_kb must not be above read_on_kb, here 64"),
        ("buffer_kb = 1024\nread_on_kb = 512", "line 6: read_on_kb must not be above"),
    ] {
        let error = error(&format!("{HDD}{more}\n"));
        assert!(error.contains(part), "{more}: {error}");
    }
    let seeks =
        "kind = \"hdd\"\nrpm = 5400\nouter_mb_per_s = 9\nseek_track_ms = 9\nseek_average_ms = 5\nseek_full_ms = 10\n";
    assert!(error(seeks).contains("no seek curve"));
}

#[test]
fn serde_applies_the_same_checks() {
    assert!(toml::from_str::<Model>(HDD).is_ok());
    let error = toml::from_str::<Model>(&HDD.replace("5400", "-1")).unwrap_err();
    assert!(error.message().contains("rpm must be a number from 1000 to 30000"), "{error}");
}

#[test]
fn oversized_text_is_refused_quickly() {
    assert!(error(&"#".repeat(1 << 20)).contains("at most 65536 bytes"));
}

proptest! {
    #[test]
    fn no_text_makes_it_panic(text in "\\PC{0,400}") {
        let _ = Model::from_toml(&text);
    }

    #[test]
    fn no_change_to_a_model_causes_a_panic(
        name in prop::sample::select(Model::BUILTIN.to_vec()),
        line in 0usize..40,
        value in prop_oneof![any::<f64>().prop_map(|x| format!("{x:e}")), any::<i64>().prop_map(|x| x.to_string()), (0i64..5000).prop_map(|x| x.to_string())],
    ) {
        let mut lines: Vec<String> = Model::builtin_toml(name).unwrap().lines().map(str::to_owned).collect();
        let at = line % lines.len();
        if let Some((key, _)) = lines[at].clone().split_once(" = ") {
            lines[at] = format!("{key} = {value}");
        }
        if let Ok(model) = Model::from_toml(&lines.join("\n")) {
            prop_assert_eq!(&Model::from_toml(&model.to_toml()).unwrap(), &model);
            let mut device = ahead_device::Device::new(&model, 1 << 30);
            for offset_bytes in [0, 1 << 29, 4096] {
                let request = ahead_device::Request { op: ahead_device::Op::Read, offset_bytes, length_bytes: 1 << 20 };
                let served = device.submit(&request, 1_700_000_000_000_000_000);
                prop_assert!(served.end_ns >= served.start_ns);
            }
        }
    }
}
