//! A running `ahead steer`, programs beside it, and a disk for them.

use ahead_observe::{OpenState, StateQuery};
use ahead_sys::bdi;
use ahead_sys::locks::IgnorePoison;
use ahead_tests::rig::prelude::*;
use std::io::Write;

/// The window of a disk before an act. Unit: pages.
pub const PAGES: u64 = 32;

/// A step takes seconds at most, on a busy machine, too.
const LIMIT: Duration = Duration::from_secs(120);

/// A running `ahead steer`. Only one can run on a machine.
pub struct Steering {
    running: Running,
    pub log: Vec<Value>,
    pub rules: tempfile::NamedTempFile,
    _alone: std::sync::MutexGuard<'static, ()>,
}

static ALONE: std::sync::Mutex<()> = std::sync::Mutex::new(());

impl Steering {
    /// `None`, with the reason printed, where nothing can be steered. The umask is strict: what others may read has its mode with any umask.
    pub fn start(rules: &str, arguments: &[&str]) -> Option<Steering> {
        let alone = ALONE.lock().ignore_poison();
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(rules.as_bytes()).unwrap();
        set_mode(file.path(), 0o644);
        loop {
            // It ends with the thread that has started it: also after a kill of the tests.
            let steer =
                program(built("ahead-steer")).args(["steer", "--json", "--rules"]).arg(file.path()).args(arguments);
            let steer = steer.by_script("umask 077 && exec \"$@\"").behind(["setpriv", "--pdeathsig", "TERM", "--"]);
            let mut running = steer.limit(LIMIT).start();
            let said = running.says_any(&["another ahead steer", "steering", "observing"]);
            if said.contains("another ahead steer") {
                running.end();
                // Waits in the kernel until no other runs on this machine.
                flock(&["--timeout", "120"]).ok();
                continue;
            }
            if said.contains("not permitted") || running.has_ended() {
                return skip(running.ends_with(77).err);
            }
            return Some(Steering { running, log: Vec::new(), rules: file, _alone: alone });
        }
    }

    /// Waits for a line of the log.
    pub fn wait_for(&mut self, what: &str, is_it: impl Fn(&Value) -> bool) -> Value {
        // Other programs of this machine have lines in the log, too.
        let deadline = Instant::now() + LIMIT;
        loop {
            assert!(Instant::now() < deadline, "{what}: not within {LIMIT:?}");
            if let Some(found) = self.log.iter().find(|entry| is_it(entry)) {
                return found.clone();
            }
            let line = self.running.line();
            assert!(!line.is_empty(), "{what}: not in the log: {:#?}", self.log);
            self.log.push(serde_json::from_str(&line).unwrap());
        }
    }

    pub fn signal(&self, name: &str) {
        self.running.signal(name);
    }

    pub fn pid(&self) -> u32 {
        self.running.pid()
    }

    /// Waits for its end.
    pub fn wait(&mut self) {
        self.running.status();
    }

    /// Ends it, and returns its log and its summary.
    pub fn stop(mut self) -> (Vec<Value>, Value) {
        self.signal("TERM");
        let mut log = std::mem::take(&mut self.log);
        while let Some(line) = Some(self.running.line()).filter(|line| !line.is_empty()) {
            log.push(serde_json::from_str(&line).unwrap());
        }
        assert!(self.running.status().success());
        assert_eq!(notes_of(self.pid()), Vec::<String>::new());
        let summary = log.pop().unwrap()["summary"].clone();
        assert!(summary.is_object());
        // The limit of a hold is 1 ms. A busy machine may interrupt each hold for longer, so that no value is asserted here.
        let hold = &summary["hold_us"];
        assert!(hold.is_null() || hold["median"].as_f64().unwrap() > 0.0, "{summary}");
        (log, summary)
    }
}

/// Waits in the kernel until no `ahead steer` runs on this machine.
fn flock(options: &[&str]) -> Program {
    program("flock").arg("--shared").args(options).args(["/run/ahead/steer.lock", "true"])
}

/// Whether no process holds the lock of steering.
pub fn is_lock_free() -> bool {
    flock(&["--nonblock"]).works()
}

/// A program that opens the file (argument 1) as `f` and goes on at each line of its input.
pub struct Victim(Running);

const BEGIN: &str = "import ctypes,mmap,os,random,sys,time,zlib; f=os.open(sys.argv[1],os.O_RDONLY)
pages=os.fstat(f).st_size//4096
def step(text='x'): print(text,flush=True); sys.stdin.readline()\n";
/// Faults in no order, far apart. After 10 single pages, on a slow disk, the window of a file that fits into memory would be set back.
pub const FAULTS: &str = "m=mmap.mmap(f,0,prot=mmap.PROT_READ)
step()
for page in random.Random(1).sample(range(pages//64),12): m[page*64*4096]
step()";
pub const SEQUENTIAL: &str = "step()
while os.read(f,65536): pass
step()";
pub const BACKWARD: &str = "step()
crc=0
for at in range(pages*4096-16384,-1,-16384): crc=zlib.crc32(os.pread(f,16384,at),crc)
step(crc)";

/// What `BACKWARD` prints for a file with this content.
pub fn backward_sum(content: &[u8]) -> String {
    let add = |crc, block: &[u8]| {
        let mut hasher = crc32fast::Hasher::new_with_initial(crc);
        hasher.update(block);
        hasher.finalize()
    };
    content.chunks(16_384).rev().fold(0, add).to_string()
}

impl Victim {
    pub fn start(script: &str, path: &Path) -> Victim {
        evict(path);
        let python = program("python3").args(["-c", &format!("{BEGIN}{script}")]).arg(path);
        let mut victim = Victim(python.open_input().start());
        victim.0.line();
        victim
    }

    /// Lets it go on.
    pub fn release(&mut self) {
        self.0.send("");
    }

    /// Lets it go on, and waits for its next line.
    pub fn go_on(&mut self) -> String {
        self.0.ask("")
    }

    pub fn pid(&self) -> u32 {
        self.0.pid()
    }

    /// Lets it go on to its end.
    pub fn ends(mut self) -> Done {
        self.release();
        self.0.end()
    }

    /// Its open file of this path.
    fn state(&self, path: &Path) -> OpenState {
        let inode = rustix::fs::stat(path).unwrap().st_ino;
        let all = StateQuery::new().unwrap().of_process(self.pid()).unwrap();
        all.into_iter().find(|state| state.inode_number == inode).unwrap()
    }

    pub fn window(&self, path: &Path) -> u64 {
        self.state(path).readahead.window_pages
    }
}

/// A file on a loop device whose disk has the kernel's default window.
pub struct Disk {
    // Before the file system is unmounted.
    pub setting: Setting,
    pub mounted: Mounted,
}

impl Disk {
    pub fn new(fs_type: &'static str) -> Option<Disk> {
        Some(Disk::with(Mounted::new(fs_type)?))
    }

    /// The same for a test that restores notes of other processes.
    pub fn alone(fs_type: &'static str) -> Option<Disk> {
        Some(Disk::with(Mounted::alone(fs_type)?))
    }

    fn with(mounted: Mounted) -> Disk {
        let setting = bdi::read_ahead_file_below(&mounted.root).unwrap();
        Disk { setting: Setting::set(setting, PAGES * 4), mounted }
    }

    /// 128 MiB.
    pub fn file(&self) -> PathBuf {
        self.mounted.file("data", 128 << 20)
    }

    /// 128 MiB, made faster.
    pub fn quick_file(&self) -> PathBuf {
        let path = self.mounted.root.join("quick");
        let mut part: Vec<u8> =
            (0..1u32 << 18).flat_map(|word| word.wrapping_mul(2_654_435_761).to_le_bytes()).collect();
        let mut file = File::create(&path).unwrap();
        for number in 0..128 {
            part[..4096].fill(number);
            file.write_all(&part).unwrap();
        }
        path
    }

    pub fn kb(&self) -> String {
        self.setting.now()
    }

    /// Rules for its files alone: other programs of this machine are left alone.
    pub fn rules(&self) -> String {
        format!("[[include]]\ncommand = 'python3*'\nmount = '{}'\n", self.mounted.root.display())
    }
}

/// A disk with a file, and a steering of its readers.
pub fn steered(file: fn(&Disk) -> PathBuf) -> Option<(Disk, PathBuf, Steering)> {
    let disk = Disk::new("ext4")?;
    let path = file(&disk);
    let steering = Steering::start(&disk.rules(), &[])?;
    Some((disk, path, steering))
}

pub fn is_act(entry: &Value, pid: u32, act: &str, outcome: &str) -> bool {
    entry["pid"] == pid && entry["act"] == act && entry["outcome"] == outcome
}
