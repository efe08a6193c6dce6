//! No space left: in `/run` (notes and locks), in `$TMPDIR` (scratch files) or on the whole root; also read-only file
//! systems. A command names the full file system and changes nothing, or works without it. `ahead run` starts the
//! program in any case.

use ahead_sys::{bdi, loopdev};
use ahead_tests::rig::prelude::*;

/// Mounts a small tmpfs over a directory and fills it.
const FULL: &str =
    "mount -t tmpfs -o size=64k tmpfs \"$WHERE\" && ! cat /dev/zero >\"$WHERE/fill\" 2>/dev/null; exec \"$@\"";
/// Remounts the root and `/run` read-only.
const READ_ONLY: &str =
    "mount -o remount,bind,ro / && { mountpoint -q /run && mount -o remount,bind,ro /run || true; } && exec \"$@\"";

/// A target, and a directory in memory for the commands' files.
struct Scene {
    mounted: Mounted,
    home: tempfile::TempDir,
    windows_kb: u64,
}

impl Scene {
    fn new() -> Option<Scene> {
        let mounted = Mounted::alone("ext4")?;
        fs::write(mounted.root.join("file"), vec![7; 1 << 20]).unwrap();
        let home = in_memory();
        copy_ahead(&home.path().join("ahead"));
        let record =
            program(home.path().join("ahead")).args(["record", "--cold", "-o"]).arg(home.path().join("p.ahead"));
        record.args(["--", "cat"]).arg(mounted.root.join("file")).ok();
        let windows_kb = bdi::read_ahead_kb(mounted.number()).unwrap();
        Some(Scene { mounted, home, windows_kb })
    }

    /// Runs a command in its own mount namespace, prepared by `set_up`.
    fn run(&self, set_up: &str, place: &str, arguments: &[&str]) -> Done {
        let command = program(self.home.path().join("ahead")).args(arguments).apart(set_up);
        let mut command = command.current_dir(self.home.path()).env("WHERE", place);
        if place == self.scratch() {
            command = command.env("TMPDIR", place);
        }
        let done = command.done();
        assert_eq!(bdi::read_ahead_kb(self.mounted.number()).unwrap(), self.windows_kb, "{done}");
        assert!(!is_loop_left(self.home.path()) && !self.home.path().join("x.img").exists(), "{done}");
        assert_eq!(names_with(&self.mounted.root, "ahead-"), Vec::<String>::new(), "{done}");
        done
    }

    /// Asserts that the command fails with a message that contains `why`.
    fn refuses(&self, set_up: &str, place: &str, arguments: &[&str], codes: &[i32], why: &str) {
        let done = self.run(set_up, place, arguments).says(why);
        assert!(codes.contains(&done.status.code().unwrap()), "{done}");
    }

    fn works(&self, set_up: &str, place: &str, arguments: &[&str], says: &str) {
        self.run(set_up, place, arguments).success().prints(says);
    }

    /// The directory for scratch files. Not /tmp: a file system mounted there would hide a source tree below it.
    fn scratch(&self) -> String {
        let path = self.home.path().join("scratch");
        fs::create_dir_all(&path).unwrap();
        path.to_str().unwrap().into()
    }

    fn target(&self) -> &str {
        self.mounted.place()
    }
}

/// Whether a loop device has a backing file in this directory.
fn is_loop_left(home: &Path) -> bool {
    let devices = fs::read_dir("/sys/block").unwrap().map(|entry| Path::new("/dev").join(entry.unwrap().file_name()));
    let is_of_home = |device: PathBuf| {
        device.to_string_lossy().starts_with("/dev/loop")
            && matches!(loopdev::status(&device), Ok(Some(status)) if status.backing.starts_with(home))
    };
    devices.into_iter().any(is_of_home)
}

const CREATE: [&str; 8] = ["disk", "create", "x.img", "--size", "32M", "--model", "ssd", "--json"];
const RUN: [&str; 6] = ["run", "-p", "p.ahead", "--", "echo", "it runs"];
const BENCH: [&str; 8] = ["bench", "streams", "--size", "1M", "--streams", "1", "--runs", "1"];

#[test]
fn a_full_run_directory_is_named_and_nothing_is_changed() {
    let Some(scene) = Scene::new() else { return };
    let refuses = |arguments: &[&str]| scene.refuses(FULL, "/run", arguments, &[1], "No space left on device");
    refuses(&CREATE);
    refuses(&[&BENCH[..], &["--directory", scene.target()]].concat());
    refuses(&["compare", "--runs", "1", "-p", "p.ahead", "--", "true"]);
    scene.works(FULL, "/run", &RUN, "it runs");
    scene.works(FULL, "/run", &["replay", "p.ahead"], "");
    scene.works(FULL, "/run", &["restore"], "nothing to undo");
}

#[test]
fn without_room_for_scratch_files_the_message_says_so() {
    let Some(scene) = Scene::new() else { return };
    let scratch = scene.scratch();
    let compare = ["compare", "--runs", "1", "-p", "p.ahead", "--", "true"];
    scene.refuses(FULL, &scratch, &compare, &[1], "No space left on device");
    scene.works(FULL, &scratch, &RUN, "it runs");
    scene.works(FULL, &scratch, &["record", "-o", "q.ahead", "--", "true"], "");
    scene.works(FULL, &scratch, &["show", "q.ahead"], "true");
    let elsewhere = on_disk();
    let elsewhere = ["--directory", elsewhere.path().to_str().unwrap()];
    scene.works(FULL, &scratch, &[&BENCH[..], &elsewhere].concat(), "1 stream");
}

#[test]
fn on_a_read_only_root_programs_run_and_nothing_is_changed() {
    let Some(scene) = Scene::new() else { return };
    scene.works(READ_ONLY, "", &RUN, "it runs");
    scene.works(READ_ONLY, "", &["replay", "p.ahead"], "");
    scene.works(READ_ONLY, "", &["show", "p.ahead"], "cat");
    for cold in [&["record", "--cold", "-o", "q.ahead", "--", "true"][..], &CREATE] {
        scene.refuses(READ_ONLY, "", cold, &[1, 77], "/run/ahead");
    }
    assert!(!scene.home.path().join("q.ahead").exists());
}
