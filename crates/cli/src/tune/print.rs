//! The output of `ahead tune`, as text and as JSON.

use super::Tuned;
use ahead_disk::tune::{Checked, Restored, Target};
use ahead_report::table::Screen;
use ahead_report::text::{one_line, printable};
use ahead_sys::machine;
use serde_json::{Value, json};
use std::path::Path;

/// The measurement of a target, the recommendation, and the changes.
pub fn tuned(tuned: &Tuned, screen: Screen) -> String {
    let target = &tuned.target;
    let heading = format!("{}, {}: {} KiB now", shown(&target.name), target.kind.describe(), tuned.current_kb);
    let mut text = screen.heading(&heading) + "\n";
    if let Some(measured) = &tuned.measured {
        text += &measured.text;
    }
    if let Some(kb) = tuned.applied_kb {
        text += &format!("set: {kb} KiB\n");
    }
    if let Some(rule) = &tuned.set.rule {
        text += &format!("set after each restart by {}{}\n", path(rule), daemon_reload(rule));
    }
    for replaced in &tuned.set.replaced {
        text += &format!("removed {}, which set the same window\n", path(replaced));
    }
    text
}

/// systemd reads a new unit only on request.
fn daemon_reload(rule: &Path) -> &'static str {
    let is_unit = rule.extension().is_some_and(|extension| extension == "service");
    if is_unit { "; load it with: systemctl daemon-reload" } else { "" }
}

pub fn tuned_json(tuned: &Tuned) -> Value {
    let target = &tuned.target;
    let mut value = json!({
        "machine": machine::describe(),
        "kernel": machine::kernel_release(),
        "target": target_json(target),
        "notes": target.notes,
        "current_kb": tuned.current_kb,
        "recommended_kb": tuned.recommended_kb,
        "reason": "it was said with --kb",
        "candidates": [],
        "harms": [],
        "noise": Value::Null,
        "doubt": Value::Null,
        "applied_kb": tuned.applied_kb,
        "rule": tuned.set.rule,
        "replaced": tuned.set.replaced,
    });
    if let (Value::Object(whole), Some(measured)) = (&mut value, &tuned.measured) {
        whole.extend(measured.json.clone());
    }
    value
}

fn target_json(target: &Target) -> Value {
    json!({
        "name": target.name,
        "kind": target.kind.describe(),
        "device": target.number.to_string(),
        "setting": target.setting,
        "identity": target.identity.as_ref().map(ToString::to_string).ok(),
    })
}

pub fn checked(target: &Target, checked: &Checked) -> String {
    let (name, rule, running_kb) = (shown(&target.name), path(&checked.rule), checked.running_kb);
    match checked.rule_kb {
        _ if checked.agrees() => format!("{name}: {running_kb} KiB, as in {rule}\n"),
        None => {
            format!("{name}: {running_kb} KiB, and there is no rule; write one with: sudo ahead tune … --persist\n")
        }
        Some(_) if !checked.intact => {
            format!("{name}: {rule} was changed since ahead wrote it; write it again with --persist\n")
        }
        Some(kb) => format!("{name}: {running_kb} KiB, but {rule} has {kb}; set it again with --kb {kb}K --apply\n"),
    }
}

pub fn checked_json(target: &Target, checked: &Checked) -> Value {
    json!({
        "target": target_json(target),
        "rule": checked.rule,
        "rule_kb": checked.rule_kb,
        "intact": checked.intact,
        "current_kb": checked.running_kb,
        "agrees": checked.agrees(),
    })
}

pub fn restored(restored: &Restored) -> String {
    let window = match (&restored.restored_kb, &restored.left_alone) {
        (Some(kb), _) => format!("set to {kb} KiB again"),
        (None, Some(why)) => format!("left alone: {}", one_line(why)),
        (None, None) => "left alone".into(),
    };
    let gone: String = restored.removed.iter().map(|file| format!("; removed {}", path(file))).collect();
    let kept = restored.kept_kb.map(|kb| format!("; the earlier window ({kb} KiB) is kept for another --restore"));
    format!("{}: {window}{gone}{}\n", shown(&restored.name), kept.unwrap_or_default())
}

pub fn shown(text: &str) -> String {
    printable(text.as_bytes())
}

fn path(path: &Path) -> String {
    use std::os::unix::ffi::OsStrExt;
    printable(path.as_os_str().as_bytes())
}
