//! `ahead steer` beside programs that are protected, that end, that are many, or that hang; and killed with its guardian.

use super::rig::{Disk, FAULTS, PAGES, SEQUENTIAL, Steering, Victim, is_act, steered};
use ahead_tests::rig::prelude::*;
use ahead_tests::rig::process::{guardians, signal};
use ahead_tests::rig::silent_files::{Releasing, SilentFiles};

/// As `FAULTS`, and prints a checksum of what was read.
const CHECKED_FAULTS: &str = "m=mmap.mmap(f,0,prot=mmap.PROT_READ)
step()
crc=0
for page in random.Random(1).sample(range(pages//64),12): crc=zlib.crc32(m[page*64*4096:page*64*4096+4096],crc)
step(crc)";

/// Programs whose memory and descriptors other users may not touch.
const PROTECTED: [(&str, &str); 6] = [
    ("no protection", ""),
    ("another user", "os.setgroups([]); os.setresgid(65534,65534,65534); os.setresuid(65534,65534,65534)"),
    ("as a setuid program of root", "os.setresgid(65534,0,0); os.setresuid(65534,0,0)"),
    ("not dumpable", "ctypes.CDLL(None).prctl(4,0,0,0,0)"),
    (
        "user namespace",
        "if ctypes.CDLL(None).unshare(0x10000000): print('skipped: no user namespaces',file=sys.stderr)
else: open('/proc/self/uid_map','w').write('0 0 1')",
    ),
    // An access to the process by its own system calls would kill it: posix_fadvise, readahead, ptrace, pidfd_open, pidfd_getfd.
    (
        "seccomp",
        "import struct
calls=[221,187,101,434,438] if os.uname().machine=='x86_64' else [223,213,117,434,438]
code=[(0x20,0,0,0)]+[(0x15,len(calls)-n,0,call) for n,call in enumerate(calls)]+[(6,0,0,0x7fff0000),(6,0,0,0x80000000)]
filter=ctypes.create_string_buffer(b''.join(struct.pack('=HBBI',*line) for line in code))
class Program(ctypes.Structure): _fields_=[('length',ctypes.c_ushort),('filter',ctypes.c_void_p)]
program=Program(len(code),ctypes.addressof(filter))
libc=ctypes.CDLL(None); assert libc.prctl(38,1,0,0,0)==0 and libc.prctl(22,2,ctypes.byref(program),0,0)==0",
    ),
];

#[test]
fn protected_programs_are_steered_or_left_alone_once() {
    let Some((_disk, path, mut steering)) = steered(Disk::quick_file) else { return };
    let mut sums = Vec::new();
    for (name, protection) in PROTECTED {
        let mut victim = Victim::start(&format!("{protection}\n{CHECKED_FAULTS}"), &path);
        let pid = victim.pid();
        sums.push(victim.go_on());
        let is_refusal = |entry: &Value| {
            is_act(entry, pid, "none", "refused") && !entry["reason"].as_str().unwrap().contains("rule")
        };
        let seen = steering.wait_for(name, |entry| is_act(entry, pid, "window", "done") || is_refusal(entry));
        let refusals = steering.log.iter().filter(|entry| is_refusal(entry)).count();
        assert_eq!(
            (refusals, victim.window(&path)),
            if seen["act"] == "window" { (0, 1) } else { (1, PAGES) },
            "{name}"
        );
        eprintln!("{name}: {}, {}", seen["act"], seen["reason"]);
        // It ends by itself, and without an error.
        victim.ends().success();
    }
    steering.stop();
    assert!(sums[0].parse::<u32>().is_ok() && sums.iter().all(|sum| *sum == sums[0]), "{sums:?}");
}

/// Each child is another process that has ended, or was killed, when its decisions arrive.
const SHORT: &str = "step()
bad=0
for turn in range(100):
    child=os.fork()
    if child==0:
        f2=os.open(sys.argv[1],os.O_RDONLY); m=mmap.mmap(f2,0,prot=mmap.PROT_READ)
        for page in random.Random(turn).sample(range(pages//64),8): m[page*64*4096]
        if turn%4==0: os.kill(os.getpid(),9)
        os._exit(0)
    bad+=os.waitpid(child,0)[1]!=(9 if turn%4==0 else 0)
    os.posix_fadvise(f,0,0,os.POSIX_FADV_DONTNEED)
step(bad)";

#[test]
fn processes_that_end_while_they_are_looked_at_do_no_harm() {
    let Some((disk, path, mut steering)) = steered(Disk::quick_file) else { return };
    let mut victim = Victim::start(SHORT, &path);
    assert_eq!(victim.go_on(), "0");
    drop(victim);
    assert_steers(&mut steering, &disk, &path);
    let (_, summary) = steering.stop();
    assert!(summary["events"].as_u64().unwrap() > 100, "{summary}");
    assert_eq!(disk.kb(), (PAGES * 4).to_string());
}

/// A new program whose faults are in no order gets its window.
pub fn assert_steers(steering: &mut Steering, disk: &Disk, path: &Path) {
    let mut victim = Victim::start(FAULTS, path);
    victim.go_on();
    let pid = victim.pid();
    steering.wait_for("a window", |entry| is_act(entry, pid, "window", "done"));
    assert_eq!((victim.window(path), disk.kb()), (1, (PAGES * 4).to_string()));
}

/// Reads through each of 10,000 open files of another file, then faults through the last descriptor.
fn many(other: &Path) -> String {
    format!(
        "import resource
limit=max(12000,resource.getrlimit(resource.RLIMIT_NOFILE)[1]); resource.setrlimit(resource.RLIMIT_NOFILE,(limit,limit))
opened=[os.open('{}',os.O_RDONLY) for _ in range(10000)]
last=os.dup(f); os.close(f); f=os.open(sys.argv[1],os.O_RDONLY) if last<9999 else last
step()
for n,g in enumerate(opened):
    os.pread(g,4096,(n*1237%pages)*4096)
    if n%1000==0: os.posix_fadvise(g,0,0,os.POSIX_FADV_DONTNEED)
m=mmap.mmap(f,0,prot=mmap.PROT_READ)
for page in random.Random(1).sample(range(pages//64),12): m[page*64*4096]
step(len(opened))",
        other.display()
    )
}

#[test]
fn one_of_ten_thousand_open_files_gets_its_window() {
    let Some(disk) = Disk::new("ext4") else { return };
    let path = disk.quick_file();
    let other = disk.mounted.file("other", 32 << 20);
    let Some(mut steering) = Steering::start(&disk.rules(), &[]) else { return };
    let mut victim = Victim::start(&many(&other), &path);
    let pid = victim.pid();
    assert_eq!(victim.go_on(), "10000");
    let is_window = |entry: &Value| is_act(entry, pid, "window", "done") && entry["path"] == path.to_str().unwrap();
    steering.wait_for("a window", is_window);
    assert_eq!((victim.window(&path), disk.kb()), (1, (PAGES * 4).to_string()));
    let (log, summary) = steering.stop();
    assert!(log.iter().any(|entry| is_act(entry, pid, "restore", "done")), "{log:#?}");
    assert_eq!(victim.window(&path), PAGES);
    eprintln!("{} open files seen, {}", summary["files_seen"], summary["refusals"]);
}

/// Four processes with reads in no order: more decisions than the ring buffer holds.
const STORM: &str = "step()
def storm(seed):
    r=random.Random(seed)
    for turn in range(12000):
        f2=os.open(sys.argv[1],os.O_RDONLY)
        for _ in range(3): os.pread(f2,4096,r.randrange(pages)*4096)
        os.close(f2)
        if turn%250==0: os.posix_fadvise(f,0,0,os.POSIX_FADV_DONTNEED)
for seed in range(4):
    if os.fork()==0: storm(seed); os._exit(0)
step(sum(os.wait()[1] for seed in range(4)))";

/// Each turn is another open file.
const TURNS: &str = "step()
while True:
    f2=os.open(sys.argv[1],os.O_RDONLY); m=mmap.mmap(f2,0,prot=mmap.PROT_READ)
    for page in random.sample(range(pages//64),8): m[page*64*4096]
    m.close(); os.close(f2); os.posix_fadvise(f,0,0,os.POSIX_FADV_DONTNEED)";

#[test]
fn storm_of_decisions_is_survived() {
    let Some((disk, path, mut steering)) = steered(Disk::quick_file) else { return };
    steering.signal("STOP");
    let mut victim = Victim::start(STORM, &path);
    let statuses = victim.go_on();
    steering.signal("CONT");
    assert_eq!(statuses, "0");
    drop(victim);
    // The decisions of the first turns may be lost.
    let mut victim = Victim::start(TURNS, &path);
    victim.release();
    let pid = victim.pid();
    steering.wait_for("a window after the storm", |entry| is_act(entry, pid, "window", "done"));
    drop(victim);
    assert_steers(&mut steering, &disk, &path);
    let (_, summary) = steering.stop();
    eprintln!("{} decisions received, {} lost", summary["events"], summary["lost_events"]);
    assert!(summary["lost_events"].as_u64() > Some(0), "the ring buffer was never full: {summary}");
    assert_eq!(disk.kb(), (PAGES * 4).to_string());
}

/// Kills process 1 at its first system call, by PTRACE_GET_SYSCALL_INFO, during an act: the setting (2) has another value then. Prints that value.
const TRACER: &str = "import ctypes,os,signal,sys
libc=ctypes.CDLL(None,use_errno=True); libc.ptrace.argtypes=[ctypes.c_long]*4; libc.ptrace.restype=ctypes.c_long
pid=int(sys.argv[1]); setting=lambda: open(sys.argv[2]).read().strip()
before=setting()
def trace(request,address=0,data=0):
    if libc.ptrace(request,pid,address,data)<0: sys.exit('ptrace: '+os.strerror(ctypes.get_errno()))
trace(0x4206,0,0x100001); trace(0x4207); info=ctypes.create_string_buffer(88); signal_=0
os.waitpid(pid,0x40000000); print('attached',flush=True)
while True:
    trace(24,0,signal_); status=os.waitpid(pid,0x40000000)[1]; signal_=0
    if not os.WIFSTOPPED(status): sys.exit('ended')
    if os.WSTOPSIG(status)!=signal.SIGTRAP|0x80:
        signal_=0 if status>>16 else os.WSTOPSIG(status); continue
    trace(0x420e,88,ctypes.addressof(info))
    if info.raw[0]==1 and setting()!=before:
        print(setting(),flush=True); os.kill(pid,9); break";

#[test]
fn setting_of_a_disk_survives_a_kill_of_steer_and_its_guardian_during_an_act() {
    let Some(disk) = Disk::alone("ext4") else { return };
    let (path, before) = (disk.quick_file(), (PAGES * 4).to_string());
    for restores in [false, true] {
        let Some(mut steering) = Steering::start(&disk.rules(), &[]) else { return };
        let pid = steering.pid();
        let guardians = guardians(pid);
        assert_eq!(guardians.len(), 1, "{guardians:?}");
        signal(guardians[0], "KILL");
        let tracer = program("python3").args(["-c", TRACER, &pid.to_string()]).arg(&disk.setting.file);
        let mut tracer = tracer.start();
        assert_eq!(tracer.line(), "attached");
        let mut victim = Victim::start(FAULTS, &path);
        victim.go_on();
        assert_eq!(tracer.line(), "4", "the setting during the act");
        steering.wait();
        // The traced process ends with it.
        drop(tracer);
        if restores {
            ahead(["restore"]).ok();
            assert_eq!((disk.kb(), notes_of(pid)), (before.clone(), vec![]));
        }
        drop(victim);
        drop(steering);
        let Some(mut steering) = Steering::start(&disk.rules(), &[]) else { return };
        assert_eq!((disk.kb(), notes_of(pid)), (before.clone(), vec![]));
        assert_steers(&mut steering, &disk, &path);
        steering.stop();
        assert_eq!(disk.kb(), before);
    }
}

/// 64 MiB; the order of the keys is not that of the rows.
const CREATE: &str = "import random,sqlite3,sys
db=sqlite3.connect(sys.argv[1]); r=random.Random(1); rows=16000
db.executescript('PRAGMA journal_mode=OFF; PRAGMA synchronous=OFF; CREATE TABLE t(id INTEGER PRIMARY KEY, key INTEGER UNIQUE, data BLOB)')
db.executemany('INSERT INTO t VALUES(?,?,?)',((n,n*7919%rows,r.randbytes(4000)) for n in range(rows))); db.commit()";

/// Checks the database by reads, then by a mapping.
const VERIFY: &str = "import sqlite3
def verify(mapped):
    os.posix_fadvise(f,0,0,os.POSIX_FADV_DONTNEED); crc=0
    db=sqlite3.connect('file:'+sys.argv[1]+'?mode=ro',uri=True); db.execute('PRAGMA mmap_size=%d'%mapped)
    for key,data in db.execute('SELECT key,data FROM t ORDER BY key'): crc=zlib.crc32(data,crc^key)
    return db.execute('PRAGMA integrity_check').fetchall(), crc
step(); step(verify(0)); step(verify(1<<30))";

#[test]
fn sqlite_verifies_its_database_beside_steering() {
    let Some(disk) = Disk::new("ext4") else { return };
    let path = disk.mounted.root.join("db");
    let created = program("python3").args(["-c", CREATE]).arg(&path).done();
    if created.err.contains("No module named") {
        return eprintln!("skipped: no sqlite3 module of Python");
    }
    created.success();
    let results = || {
        let mut victim = Victim::start(VERIFY, &path);
        [victim.go_on(), victim.go_on()]
    };
    let before = results();
    assert!(before[0] == before[1] && before[0].starts_with("([('ok',)], "), "{before:?}");
    let Some(steering) = Steering::start(&disk.rules(), &[]) else { return };
    assert_eq!(results(), before);
    let (_, summary) = steering.stop();
    assert!(summary["files_seen"].as_u64() > Some(0), "{summary}");
    eprintln!("windows: {}, fetches: {}", summary["windows_set"], summary["fetches"]);
}

/// Faults through a mapping whose descriptor was closed.
const CLOSED: &str = "m=mmap.mmap(f,0,prot=mmap.PROT_READ); os.closerange(3,256)
step()
for page in random.Random(1).sample(range(pages//64),40): m[page*64*4096]
step()";

#[test]
fn mapping_whose_descriptor_was_closed_is_reported() {
    let Some(disk) = Disk::new("ext4") else { return };
    let path = disk.quick_file();
    // Its path and mount are those of the mapping.
    let Some(mut steering) = Steering::start(&format!("{}path = '**/quick'\n", disk.rules()), &[]) else { return };
    let mut victim = Victim::start(CLOSED, &path);
    let pid = victim.pid();
    victim.go_on();
    let is_refusal = |entry: &Value| is_act(entry, pid, "none", "refused") && entry["class"] == "random mmap";
    let refused = steering.wait_for("a refusal", is_refusal);
    assert!(refused["reason"].as_str().unwrap().contains("no descriptor"), "{refused}");
    assert_eq!((refused["path"].as_str(), &refused["descriptor"]), (path.to_str(), &Value::Null), "{refused}");
    let (log, summary) = steering.stop();
    assert!(!log.iter().any(|entry| entry["pid"] == pid && entry["act"] == "window"), "{log:#?}");
    assert_eq!(log.iter().filter(|entry| is_refusal(entry)).count(), 1, "{log:#?}");
    assert!(summary["refusals"]["no descriptor, only a mapping"].as_u64() >= Some(1), "{summary}");
}

#[test]
fn file_system_that_hangs_stops_no_steering_of_another() {
    let Some(disk) = Disk::new("ext4") else { return };
    if !Path::new("/dev/fuse").exists() {
        return eprintln!("skipped: no FUSE here");
    }
    let path = disk.quick_file();
    let silent = SilentFiles::new();
    let _releasing = Releasing(&silent);
    let rules = format!("{}[[include]]\ncommand = 'python3*'\nmount = '{}'\n", disk.rules(), silent.root.display());
    let Some(mut steering) = Steering::start(&rules, &[]) else { return };
    let backward = format!("for at in range(28,-1,-4): os.pread(f,16384,at*4096)\n{SEQUENTIAL}");
    let faults = "m=mmap.mmap(f,0,prot=mmap.PROT_READ)
step()
for page in random.Random(1).sample(range(32),8): m[page*4096]
m[4096*1000]";
    let scripts = [("sequential", SEQUENTIAL), ("backward", &backward), ("mapped", faults)];
    let mut hanging = Vec::new();
    for (name, script) in scripts {
        let before = silent.held();
        let mut victim = Victim::start(script, &silent.root.join(name));
        victim.release();
        wait_until("a held request", || silent.held() > before);
        hanging.push(victim);
    }
    assert_steers(&mut steering, &disk, &path);
    let (log, _) = steering.stop();
    let of_hanging = log.iter().filter(|entry| hanging.iter().any(|victim| entry["pid"] == victim.pid()));
    eprintln!("{} entries about the file system that hangs", of_hanging.count());
    assert!(silent.held() >= hanging.len());
}
