//! A running `ahead steer`, programs beside it, and a disk for them.

use crate::mounted::Mounted;
use ahead_observe::{OpenState, StateQuery};
use ahead_sys::bdi;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

/// Each step takes seconds at most. The limit ends one that hangs.
const LONGEST: Duration = Duration::from_secs(120);

/// The window of a disk before an act. Unit: pages.
pub const PAGES: u32 = 32;

/// A running `ahead steer`. Only one can run on a machine.
pub struct Steering {
    pub child: Child,
    lines: Receiver<String>,
    pub log: Vec<Value>,
    pub rules: tempfile::NamedTempFile,
    _alone: std::sync::MutexGuard<'static, ()>,
}

static ALONE: std::sync::Mutex<()> = std::sync::Mutex::new(());

impl Steering {
    /// `None`, with the reason printed, where nothing can be steered.
    pub fn start(rules: &str, arguments: &[&str]) -> Option<Steering> {
        let alone = ALONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(rules.as_bytes()).unwrap();
        fs::set_permissions(file.path(), fs::Permissions::from_mode(0o644)).unwrap();
        let began = Instant::now();
        loop {
            // It ends with the thread that has started it: also after a kill of the tests.
            let mut command = Command::new("setpriv");
            command.args(["--pdeathsig", "TERM", "--"]).arg(assert_cmd::cargo::cargo_bin("ahead-steer"));
            command.args(["steer", "--json", "--rules"]).arg(file.path()).args(arguments);
            let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
            let mut errors = BufReader::new(child.stderr.take().unwrap());
            let mut said = String::new();
            let is_known =
                |said: &str| ["another ahead steer", "steering", "observing"].iter().any(|part| said.contains(part));
            while !is_known(&said) && errors.read_line(&mut said).unwrap() > 0 {}
            if said.contains("another ahead steer") {
                child.wait().unwrap();
                wait_for_others(LONGEST.saturating_sub(began.elapsed()));
                continue;
            }
            if !is_known(&said) {
                assert_eq!(child.wait().unwrap().code(), Some(77), "{said}");
                eprintln!("skipped: {said}");
                return None;
            }
            std::thread::spawn(move || std::io::copy(&mut errors, &mut std::io::sink()));
            let lines = lines_of(child.stdout.take().unwrap());
            return Some(Steering { child, lines, log: Vec::new(), rules: file, _alone: alone });
        }
    }

    /// Waits for a line of the log.
    pub fn wait_for(&mut self, what: &str, is_it: impl Fn(&Value) -> bool) -> Value {
        let deadline = Instant::now() + LONGEST;
        loop {
            if let Some(found) = self.log.iter().find(|entry| is_it(entry)) {
                return found.clone();
            }
            let left = deadline.saturating_duration_since(Instant::now());
            let line = self.lines.recv_timeout(left);
            let line = line.unwrap_or_else(|_| panic!("{what}: not in the log: {:#?}", self.log));
            self.log.push(serde_json::from_str(&line).unwrap());
        }
    }

    pub fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// Ends it, and returns its log and its summary.
    pub fn stop(mut self) -> (Vec<Value>, Value) {
        self.signal(Signal::TERM);
        let mut log = std::mem::take(&mut self.log);
        log.extend(self.lines.iter().map(|line| serde_json::from_str::<Value>(&line).unwrap()));
        assert!(self.child.wait().unwrap().success());
        assert_eq!(notes_of(self.child.id()), 0);
        let summary = log.pop().unwrap()["summary"].clone();
        assert!(summary.is_object());
        // The limit of a hold is 1 ms. A busy machine may interrupt each hold for longer, so that no value is asserted here.
        let hold = &summary["hold_us"];
        assert!(hold.is_null() || hold["median"].as_f64().unwrap() > 0.0, "{summary}");
        (log, summary)
    }
}

impl Drop for Steering {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Waits in the kernel until no `ahead steer` runs on this machine.
fn wait_for_others(left: Duration) {
    let seconds = left.as_secs().to_string();
    let mut flock = Command::new("flock");
    let waited = flock.args(["--shared", "--timeout", &seconds, "/run/ahead/steer.lock", "true"]).status().unwrap();
    assert!(waited.success(), "another ahead steer runs");
}

fn lines_of(output: ChildStdout) -> Receiver<String> {
    let (sender, receiver) = channel();
    std::thread::spawn(move || {
        BufReader::new(output).lines().map_while(Result::ok).all(|line| sender.send(line).is_ok())
    });
    receiver
}

pub fn notes_of(pid: u32) -> usize {
    ahead_undo::notes().unwrap().iter().filter(|(_, note)| note.owner.pid == pid).count()
}

/// A program that opens the file (argument 1) as `f` and goes on at each line of its input.
pub struct Victim {
    pub child: Child,
    output: BufReader<ChildStdout>,
}

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

impl Victim {
    pub fn start(script: &str, path: &Path) -> Victim {
        evict(path);
        let mut command = Command::new("python3");
        command.args(["-c", &format!("{BEGIN}{script}")]).arg(path);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        let mut victim = Victim { child, output };
        victim.line();
        victim
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        line.trim().to_owned()
    }

    /// Lets it go on.
    pub fn release(&mut self) {
        self.child.stdin.as_mut().unwrap().write_all(b"\n").unwrap();
    }

    /// Lets it go on, and waits for its next line.
    pub fn go_on(&mut self) -> String {
        self.release();
        self.line()
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Its open file of this path.
    fn state(&self, path: &Path) -> OpenState {
        let inode = rustix::fs::stat(path).unwrap().st_ino;
        let all = StateQuery::new().unwrap().of_process(self.pid()).unwrap();
        all.into_iter().find(|state| state.inode_number == inode).unwrap()
    }

    pub fn window(&self, path: &Path) -> u32 {
        self.state(path).readahead.window_pages
    }
}

impl Drop for Victim {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn evict(path: &Path) {
    let file = File::open(path).unwrap();
    file.sync_all().unwrap();
    rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).unwrap();
}

/// A file on a loop device whose disk has the kernel's default window.
pub struct Disk {
    pub mounted: Mounted,
    pub setting: PathBuf,
    before: String,
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
        let before = fs::read_to_string(&setting).unwrap();
        fs::write(&setting, (PAGES * 4).to_string()).unwrap();
        Disk { mounted, setting, before }
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
        fs::read_to_string(&self.setting).unwrap().trim().to_owned()
    }

    /// Rules for its files alone: other programs of this machine are left alone.
    pub fn rules(&self) -> String {
        format!("[[include]]\ncommand = 'python3*'\nmount = '{}'\n", self.mounted.root.display())
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = fs::write(&self.setting, self.before.trim());
    }
}

pub fn is_act(entry: &Value, pid: u32, act: &str, outcome: &str) -> bool {
    entry["pid"] == pid && entry["act"] == act && entry["outcome"] == outcome
}
