//! `ahead boot status` for people and as JSON.

use ahead_boot::{Initramfs, Maker, Status};
use ahead_report::text::printable;
use serde_json::json;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

/// Writes the status to standard output.
pub fn status(status: &Status, as_json: bool) -> anyhow::Result<ExitCode> {
    let text = if as_json { format!("{:#}\n", value(status)) } else { lines(status) };
    std::io::stdout().write_all(text.as_bytes())?;
    Ok(ExitCode::SUCCESS)
}

/// What is left to do after an installation, and what the next boots do.
pub fn next_steps(root: &Path, linger: Duration) {
    let is_here = root == Path::new("/");
    let initramfs = if is_here { Initramfs::here() } else { Initramfs::in_tree(root) };
    let systemd_runs = ahead_boot::systemd_runs();
    if is_here && (systemd_runs || initramfs.has_replay == Ok(true)) {
        println!("the replay starts {}", printable(initramfs.text().as_bytes()));
    }
    let place = if is_here { String::new() } else { format!(", in the system in {}", root.display()) };
    if let Some(command) = initramfs.command() {
        println!("next: {command}{place}: the replay then starts before PID 1");
    }
    if is_here && !systemd_runs {
        println!(
            "systemd does not run here: its units have no effect, and no boot is observed (docs/guide/boot.md: Other inits)"
        );
        return;
    }
    let linger = linger.as_secs_f64();
    println!(
        "enabled: observing boots until {linger} s after default.target, and replaying them; after the next boot: ahead boot status"
    );
}

fn value(status: &Status) -> serde_json::Value {
    let account = status.account.as_ref().ok().and_then(Option::as_ref);
    json!({
        "installed": status.installed,
        "systemd": status.systemd_runs,
        "starts_in": starts_in(status),
        "initramfs": status.initramfs.as_ref().map(|initramfs| json!({
            "maker": initramfs.maker.map(Maker::name),
            "image": initramfs.image.as_ref().map(|path| path.to_string_lossy()),
            "has_replay": initramfs.has_replay.as_ref().ok(),
            "unknown": initramfs.has_replay.as_ref().err(),
            "next_step": initramfs.command(),
        })),
        "off": status.off.map(|off| off.reason()),
        "directory": status.directory.to_string_lossy(),
        "recordings": status.recordings,
        "profile": status.profile.as_ref().map(|path| path.to_string_lossy()),
        "next_recording": status.next_recording,
        "boots_since_recording": status.state.boots_since_recording,
        "stale_percent": status.state.stale_percent,
        "stale_limit_percent": status.state.stale_limit_percent(),
        "packages_changed": status.state.packages_changed,
        "recording_requested": status.state.requested,
        "package_profiles": status.packages,
        "replayed_in": account.map(|_| if status.replayed_early { "initramfs" } else { "systemd" }),
        "account": account,
        "account_unknown": status.account.as_ref().err(),
    })
}

/// Where the next boot's replay starts. `None`: nowhere, or that is not known.
fn starts_in(status: &Status) -> Option<&'static str> {
    match status.initramfs.as_ref()?.has_replay {
        Ok(true) => Some("initramfs"),
        Ok(false) => status.systemd_runs.then_some("systemd"),
        Err(_) => None,
    }
}

fn lines(status: &Status) -> String {
    let path = |path: &Path| printable(path.as_os_str().as_bytes());
    let installed = match (status.installed, status.systemd_runs) {
        (false, _) => "no; install with: sudo ahead boot install",
        (true, true) => "yes",
        (true, false) => "yes, without an effect: systemd does not run here (docs/guide/boot.md: Other inits)",
    };
    let mut rows = vec![("installed", installed.to_owned())];
    let starts = status.initramfs.as_ref().filter(|_| status.systemd_runs || starts_in(status).is_some());
    rows.extend(starts.map(|initramfs| ("starts", printable(initramfs.text().as_bytes()))));
    if let Some(off) = status.off {
        rows.push(("off", off.reason().to_owned()));
    }
    rows.push(("recordings", format!("{} in {}", status.recordings, path(&status.directory))));
    rows.push(("profile", status.profile.as_deref().map_or_else(|| "none yet".into(), path)));
    let next = match &status.next_recording {
        Some(why) => format!("recorded: {why}"),
        None if !status.installed => "not recorded: not installed".into(),
        None if !status.systemd_runs => "not recorded: systemd does not run here".into(),
        None => "not recorded".into(),
    };
    rows.push(("next boot", next));
    rows.extend(status.packages.rows().into_iter().map(|(name, value)| (name, printable(value.as_bytes()))));
    let replay = match &status.account {
        Ok(None) => "none in this boot".into(),
        Ok(Some(account)) => {
            let by = if status.replayed_early { "before PID 1" } else { "by systemd" };
            format!("{by}: {}", crate::account::line(account))
        }
        Err(why) => format!("not known: {}", printable(why.as_bytes())),
    };
    rows.push(("replay", replay));
    rows.iter().map(|(name, value)| format!("{name:>10}  {value}\n")).collect()
}
