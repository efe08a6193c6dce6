//! Decodes the structures of `bpf/launches.h`. Any bytes give an event or nothing, never a panic.

use super::{Launch, LaunchEvent, StartAccount, StartId};
use crate::fields::Fields;
use crate::program_file::ProgramFile;
use ahead_model::DeviceNumber;
use std::time::Duration;

const EXEC: u32 = 1;
const END: u32 = 2;

const ELEVATED: u32 = 1;
const SCRIPT: u32 = 2;
const TRUNCATED: u32 = 4;

/// `struct account`, `struct program_file`, and both: `struct start`.
const ACCOUNT_BYTES: usize = 40;
const PROGRAM_BYTES: usize = 16;
const START_BYTES: usize = PROGRAM_BYTES + ACCOUNT_BYTES;
/// `struct launch_end`: type, key, time, account.
const END_BYTES: usize = 32 + ACCOUNT_BYTES;
/// `struct launch_exec` before its text.
const EXEC_BYTES: usize = 104;

/// `None`: no event has these bytes.
pub(super) fn event(bytes: &[u8]) -> Option<LaunchEvent> {
    match u32::from_ne_bytes(*bytes.first_chunk()?) {
        EXEC => exec(bytes).map(LaunchEvent::Exec),
        END => {
            let fields = Fields::of::<END_BYTES>(bytes)?;
            let (id, ended_ns) = (start_id(&fields, 8)?, fields.u64(24));
            Some(LaunchEvent::Ended(id, account(&fields, 32, id, ended_ns)))
        }
        _ => None,
    }
}

fn exec(bytes: &[u8]) -> Option<Launch> {
    let (head, text) = bytes.split_at_checked(EXEC_BYTES)?;
    let fields = Fields(head);
    let flags = fields.u32(4);
    let (name_bytes, interpreter_bytes) = (fields.u16(100).into(), usize::from(fields.u16(102)));
    let (name, rest) = text.split_at_checked(name_bytes)?;
    Some(Launch {
        time_ns: fields.u64(8),
        pid: fields.u32(16),
        parent: fields.u32(20),
        uid: fields.u32(24),
        gid: fields.u32(28),
        is_elevated: flags & ELEVATED != 0,
        start: start_id(&fields, 32),
        nested_in: start_id(&fields, 48),
        program: program(&fields, 64),
        is_script: flags & SCRIPT != 0,
        script: Some(program(&fields, 80)).filter(|script| script.inode != 0),
        mount_namespace: fields.u32(96),
        name: name.to_vec(),
        interpreter: rest.get(..interpreter_bytes)?.to_vec(),
        is_truncated: flags & TRUNCATED != 0,
    })
}

/// `struct start_key`; `None`: it names no start.
fn start_id(fields: &Fields<'_>, at: usize) -> Option<StartId> {
    let id = StartId { began_ns: fields.u64(at), pid: fields.u32(at + 8) };
    (id.pid != 0).then_some(id)
}

pub(super) fn key(start: StartId) -> [u8; 16] {
    let mut key = [0; 16];
    key[..8].copy_from_slice(&start.began_ns.to_ne_bytes());
    key[8..12].copy_from_slice(&start.pid.to_ne_bytes());
    key
}

fn program(fields: &Fields<'_>, at: usize) -> ProgramFile {
    ProgramFile { inode: fields.u64(at), device: DeviceNumber::from_kernel(fields.u32(at + 8)) }
}

/// The account in a `struct start`.
pub(super) fn running(bytes: &[u8], id: StartId, now_ns: u64) -> Option<StartAccount> {
    Some(account(&Fields::of::<START_BYTES>(bytes)?, PROGRAM_BYTES, id, now_ns))
}

fn account(fields: &Fields<'_>, at: usize, id: StartId, until_ns: u64) -> StartAccount {
    let (waited_in_exec_ns, waiting) = (fields.u64(at + 8), fields.u32(at + 32));
    let elapsed_ns = until_ns.saturating_sub(id.began_ns);
    let present_ns = if waiting > 0 { until_ns } else { 0 };
    let waited_ns = fields.u64(at).wrapping_add(present_ns);
    // It is read while threads change it: a sum and a number that do not fit to each other give an impossible time.
    let waited_ns = waited_ns.min(elapsed_ns.saturating_add(waited_in_exec_ns));
    StartAccount {
        elapsed: Duration::from_nanos(elapsed_ns),
        waited: Duration::from_nanos(waited_ns),
        waited_in_exec: Duration::from_nanos(waited_in_exec_ns),
        read_bytes: fields.u64(at + 16),
        waits: fields.u32(at + 24),
        major_faults: fields.u32(at + 28),
        processes: fields.u32(at + 36),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::Layout;
    use proptest::prelude::*;

    const ID: StartId = StartId { pid: 7, began_ns: 1000 };

    fn layout() -> Layout {
        Layout::of("layout_events")
    }

    fn flag(name: &str) -> u64 {
        layout().value("launch_flag", name)
    }

    /// An exec of process 8 at time 9, as the BPF program writes it.
    fn exec_bytes(flags: u64, name: &[u8], interpreter: &[u8]) -> Vec<u8> {
        let members = [
            ("type", layout().value("launch_type", "LAUNCH_EXEC")),
            ("flags", flags),
            ("time_ns", 9),
            ("pid", 8),
            ("parent", 6),
            ("uid", 1000),
            ("gid", 1001),
            ("start.began_ns", 9),
            ("start.pid", 8),
            ("outer.began_ns", 1000),
            ("outer.pid", 7),
            ("program.inode", 5),
            ("program.device", DeviceNumber::new(8, 1).to_kernel().into()),
            ("mount_namespace", 4),
            ("name_bytes", name.len() as u64),
            ("interpreter_bytes", interpreter.len() as u64),
        ];
        let mut bytes = layout().bytes("launch_exec", &members);
        let text = layout().offset("launch_exec", "text");
        bytes.truncate(text);
        [&bytes, name, interpreter].concat()
    }

    #[test]
    fn exec_has_the_layout_of_its_structure() {
        let expected = Launch {
            time_ns: 9,
            pid: 8,
            parent: 6,
            uid: 1000,
            gid: 1001,
            is_elevated: false,
            start: Some(StartId { pid: 8, began_ns: 9 }),
            nested_in: Some(ID),
            program: ProgramFile { device: DeviceNumber::new(8, 1), inode: 5 },
            is_script: true,
            script: None,
            mount_namespace: 4,
            name: b"./a".to_vec(),
            interpreter: b"/bin/sh".to_vec(),
            is_truncated: false,
        };
        assert_eq!(expected.new_start(), expected.start);
        let bytes = exec_bytes(flag("LAUNCH_SCRIPT"), b"./a", b"/bin/sh");
        assert_eq!(event(&bytes), Some(LaunchEvent::Exec(expected)));
        assert_eq!(event(&bytes[..bytes.len() - 1]), None);
        let Some(LaunchEvent::Exec(other)) =
            event(&exec_bytes(flag("LAUNCH_ELEVATED") | flag("LAUNCH_TRUNCATED"), b"", b""))
        else {
            panic!("no exec")
        };
        assert!(other.is_elevated && other.is_truncated && !other.is_script && other.name.is_empty());
    }

    #[test]
    fn end_and_running_account_have_the_layout_of_their_structures() {
        let members =
            [("waited_ns", 300), ("waited_in_exec_ns", 100), ("read_bytes", 4096), ("waits", 3), ("major_faults", 2)];
        let prefixed: Vec<(String, u64)> =
            members.iter().map(|(name, value)| (format!("account.{name}"), *value)).collect();
        let members: Vec<(&str, u64)> = prefixed.iter().map(|(name, value)| (name.as_str(), *value)).collect();
        let expected = StartAccount {
            elapsed: Duration::from_nanos(500),
            waited: Duration::from_nanos(300),
            waited_in_exec: Duration::from_nanos(100),
            waits: 3,
            major_faults: 2,
            read_bytes: 4096,
            processes: 0,
        };
        let kind = layout().value("launch_type", "LAUNCH_END");
        let head = [("type", kind), ("start.began_ns", 1000), ("start.pid", 7), ("ended_ns", 1500)];
        let bytes = layout().bytes("launch_end", &[&head[..], &members].concat());
        assert_eq!(event(&bytes), Some(LaunchEvent::Ended(ID, expected)));

        // A wait that began at 1200 and goes on: the sum lacks the present time.
        let waiting =
            [("account.waited_ns", 100u64.wrapping_sub(1200)), ("account.waiting", 1), ("account.processes", 2)];
        let bytes = layout().bytes("start", &waiting);
        let running = running(&bytes, ID, 1500).unwrap();
        assert_eq!((running.waited, running.processes), (Duration::from_nanos(400), 2));
        assert_eq!(super::running(&bytes[1..], ID, 1500), None);
        assert_eq!(key(ID).to_vec(), layout().bytes("start_key", &[("began_ns", 1000), ("pid", 7)]));
    }

    #[test]
    fn losses_have_the_numbers_of_the_enum() {
        let numbers = ["LAUNCH_LOST_EVENT", "LAUNCH_LOST_START"].map(|name| layout().value("launch_loss", name) as u32);
        assert_eq!(numbers, [super::super::LOST_EVENT, super::super::LOST_START]);
    }

    proptest! {
        #[test]
        fn any_bytes_give_an_event_or_nothing(kind in 0u32..4, body in proptest::collection::vec(any::<u8>(), 0..300)) {
            let _ = event(&body);
            let _ = event(&[&kind.to_ne_bytes()[..], &body].concat());
            let waited = running(&body, ID, 1500).map(|account| account.waited.as_nanos());
            prop_assert!(waited.is_none_or(|waited| waited <= u128::from(u64::MAX)));
        }
    }
}
