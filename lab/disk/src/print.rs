//! The output of `ahead disk`.

use ahead_disk::{ByteRange, DiskInfo, Faults, Read, Stat};
use ahead_report::number::size;
use ahead_report::table::{Kind, Screen, Table};
use ahead_report::text::printable;
use serde_json::{Value, json};
use std::io::{Result, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Prints a new disk.
pub fn attached(out: &mut impl Write, disk: &DiskInfo, as_json: bool) -> Result<()> {
    if as_json {
        return writeln!(out, "{}", disk_json(disk));
    }
    let on = disk.mount.as_ref().map_or(String::new(), |mount| format!(" on {}", shown(mount)));
    let (device, model) = (disk.device.display(), printable(disk.model.name.as_bytes()));
    writeln!(out, "{}: {device} with {}, model {model}{on}", disk.name, filesystem(disk))?;
    writeln!(
        out,
        "this machine without a model: {:.0} µs for 4 KiB, {:.0} requests/s, {}/s",
        us(disk.floor.latency_ns),
        disk.floor.requests_per_s,
        size(disk.floor.bytes_per_s as u64)
    )?;
    for at in &disk.punctuality {
        let (percent, depth) = (at.share * 100.0, at.depth);
        writeln!(out, "reads within 5 % or 60 µs of the model: {percent:.1} % with {depth} at a time")?;
    }
    beyond_rig(out, disk)
}

/// Prints all disks.
pub fn list(out: &mut impl Write, disks: &[DiskInfo], as_json: bool) -> Result<()> {
    if as_json {
        return writeln!(out, "{}", Value::from_iter(disks.iter().map(disk_json)));
    }
    if disks.is_empty() {
        return writeln!(out, "no emulated disks");
    }
    let columns = ["name", "device", "size", "model", "fs", "mount"].map(|name| (name, Kind::Text));
    let mut table = Table::new(columns.into_iter().chain([("image", Kind::Path)]));
    for disk in disks {
        let name =
            if disk.is_alive() { disk.name.clone() } else { format!("{} (dead: sudo ahead restore)", disk.name) };
        table.row([
            name,
            shown(&disk.device),
            size(disk.capacity_bytes),
            printable(disk.model.name.as_bytes()),
            filesystem(disk).to_owned(),
            disk.mount.as_deref().map_or("-".into(), shown),
            shown(&disk.image),
        ]);
    }
    write!(out, "{}", table.render(Screen::stdout()))
}

/// Prints the counters of a disk, and its last reads.
pub fn stat(out: &mut impl Write, disk: &DiskInfo, stat: &Stat, reads: Option<&[Read]>, as_json: bool) -> Result<()> {
    if as_json {
        let mut value = json!(stat);
        value["name"] = json!(disk.name);
        value["model"] = json!(disk.model.name);
        value["beyond_rig"] = json!(disk.beyond_rig);
        value["beyond_rig_why"] = json!(disk.beyond_rig_why);
        if let Some(reads) = reads {
            value["reads"] = json!(reads);
        }
        return writeln!(out, "{value}");
    }
    writeln!(out, "{} ({}), {:.1} s", disk.name, printable(disk.model.name.as_bytes()), stat.seconds)?;
    writeln!(out, "reads     {:>10}   {}, at most {} at once", stat.requests, size(stat.bytes), stat.depth_max)?;
    writeln!(out, "seeks     {:>10}", stat.seeks)?;
    writeln!(out, "busy      {:>10.3} s", stat.busy_us as f64 / 1e6)?;
    writeln!(out, "writes    {:>10}   {} (not timed)", stat.writes, size(stat.write_bytes))?;
    writeln!(out, "failed    {:>10}", stat.failed)?;
    writeln!(
        out,
        "late      {:>10}   {} of them because the read of the image took too long",
        stat.late_requests, stat.late_image_requests
    )?;
    writeln!(
        out,
        "lateness  {:>10.1} µs median, {:.1} µs p99, {:.1} µs max",
        stat.lateness_p50_us, stat.lateness_p99_us, stat.lateness_max_us
    )?;
    if let Some(error) = &stat.image_error {
        writeln!(out, "error     {}", printable(error.as_bytes()))?;
    }
    if stat.faults != Faults::default() {
        writeln!(out, "faults    {}", faults_text(&stat.faults))?;
    }
    beyond_rig(out, disk)?;
    for read in reads.into_iter().flatten() {
        let Read { offset_bytes, length_bytes, takes_ns, late_ns, .. } = read;
        writeln!(out, "{offset_bytes:>14} +{length_bytes:<8} {:>10.1} µs, {:.1} late", us(*takes_ns), us(*late_ns))?;
    }
    Ok(())
}

/// Prints the faults of a disk.
pub fn faults(out: &mut impl Write, disk: &DiskInfo, faults: &Faults, as_json: bool) -> Result<()> {
    if as_json {
        let mut value = json!(faults);
        value["name"] = json!(disk.name);
        return writeln!(out, "{value}");
    }
    writeln!(out, "{}: {}", disk.name, faults_text(faults))
}

/// Prints the detached disks.
pub fn detached(out: &mut impl Write, disks: &[&DiskInfo], as_json: bool) -> Result<()> {
    if as_json {
        return writeln!(out, "{}", json!(disks.iter().map(|disk| &disk.name).collect::<Vec<_>>()));
    }
    disks.iter().try_for_each(|disk| writeln!(out, "detached {} ({})", disk.name, shown(&disk.image)))
}

fn faults_text(faults: &Faults) -> String {
    let mut parts: Vec<String> = faults
        .fail
        .iter()
        .map(|ByteRange { offset_bytes, length_bytes }| format!("fails at {offset_bytes}+{length_bytes}"))
        .collect();
    if faults.stall_ms > 0 {
        parts.push(format!("stalls {} ms", faults.stall_ms));
    }
    if parts.is_empty() { "no faults".into() } else { parts.join(", ") }
}

fn beyond_rig(out: &mut impl Write, disk: &DiskInfo) -> Result<()> {
    if let Some(why) = &disk.beyond_rig_why {
        writeln!(out, "TOO FAST FOR THIS MACHINE: {why}; times are not those of the model")?;
    }
    Ok(())
}

/// A path, printable on a terminal.
fn shown(path: &Path) -> String {
    printable(path.as_os_str().as_bytes())
}

fn us(ns: u64) -> f64 {
    ns as f64 / 1e3
}

fn filesystem(disk: &DiskInfo) -> &str {
    disk.filesystem.as_deref().unwrap_or("no file system")
}

fn disk_json(disk: &DiskInfo) -> Value {
    let mut value = json!(disk);
    value["alive"] = json!(disk.is_alive());
    value["model"] = json!(disk.model.name);
    value
}
