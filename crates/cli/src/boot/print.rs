//! `ahead boot status` for people and as JSON.

use ahead::boot::Status;
use ahead_report::text::printable;
use serde_json::json;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::ExitCode;

/// Writes the status to standard output.
pub fn status(status: &Status, as_json: bool) -> anyhow::Result<ExitCode> {
    let text = if as_json { format!("{:#}\n", value(status)) } else { lines(status) };
    std::io::stdout().write_all(text.as_bytes())?;
    Ok(ExitCode::SUCCESS)
}

fn value(status: &Status) -> serde_json::Value {
    json!({
        "installed": status.installed,
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
        "account": status.account,
    })
}

fn lines(status: &Status) -> String {
    let path = |path: &Path| printable(path.as_os_str().as_bytes());
    let installed = if status.installed { "yes" } else { "no; install with: ahead boot install" };
    let mut rows = vec![("installed", installed.to_owned())];
    if let Some(off) = status.off {
        rows.push(("off", off.reason().to_owned()));
    }
    rows.push(("recordings", format!("{} in {}", status.recordings, path(&status.directory))));
    rows.push(("profile", status.profile.as_deref().map_or_else(|| "none yet".into(), path)));
    let next = status.next_recording.as_ref().map_or_else(|| "not recorded".into(), |why| format!("recorded: {why}"));
    rows.push(("next boot", next));
    rows.extend(status.packages.rows().into_iter().map(|(name, value)| (name, printable(value.as_bytes()))));
    let replay = status.account.as_ref().map_or_else(|| "none in this boot".into(), crate::account::line);
    rows.push(("replay", replay));
    rows.iter().map(|(name, value)| format!("{name:>10}  {value}\n")).collect()
}
