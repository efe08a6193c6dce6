//! Disk models of a user: an error is one line, before any change and without privilege.

use ahead_device::Model;
use ahead_tests::rig::prelude::*;

/// Runs `ahead disk create` with the model in `file` and an image in `directory`.
fn create_disk(directory: &Path, model: &Path) -> Done {
    ahead(["disk", "create"]).arg(directory.join("image")).args(["--size", "64M", "--model"]).arg(model).done()
}

/// Writes `text` as a model, runs `ahead disk create` with it, and expects one error line that contains `message`.
fn assert_refused(text: &str, message: &str) {
    let directory = tempfile::tempdir().unwrap();
    let model = directory.path().join("model.toml");
    std::fs::write(&model, text).unwrap();
    create_disk(directory.path(), &model).code(1).out_is("").says(message).in_one_line();
    assert!(!directory.path().join("image").exists(), "a refused model leaves no image");
}

#[test]
fn a_wrong_model_is_refused_with_line_and_field() {
    assert_refused("kind = \"hdd\"\nrpm = 0\n", "line 2: rpm must be a number from 1000 to 30000");
    assert_refused("kind = \"cloud\"\niops = nan\n", "line 2: iops must be a number from 1 to 10000000");
    assert_refused("kind = \"drum\"\n", "line 1: kind must be one of hdd, flash, cloud");
    assert_refused("kind = \"flash\"\nchannels = 4\nspeed = 3\n", "line 3: unknown field \"speed\"");
    assert_refused("\u{0}\u{1}", "line 1: not TOML");
}

#[test]
fn a_builtin_model_with_one_wrong_figure_is_refused() {
    let text = Model::builtin_toml("hdd").unwrap();
    assert_refused(
        &text.replace("seek_average_ms = 8.5", "seek_average_ms = 85"),
        "no seek curve takes 0.8 ms for a track",
    );
    assert_refused(&text.replace("inner_mb_per_s = 83", "inner_mb_per_s = 830"), "inner_mb_per_s must not be above");
}

#[test]
fn a_large_or_special_model_file_is_not_read() {
    let directory = tempfile::tempdir().unwrap();
    let huge = directory.path().join("huge.toml");
    std::fs::File::create(&huge).unwrap().set_len(1 << 40).unwrap();
    let missing = directory.path().join("missing.toml");
    // A name that is neither a model nor a file is wrong usage.
    for (model, status) in [(missing, 2), (directory.path().to_owned(), 1), (huge, 1), ("/dev/zero".into(), 1)] {
        create_disk(directory.path(), &model).code(status).out_is("").says("TOML file");
    }
}
