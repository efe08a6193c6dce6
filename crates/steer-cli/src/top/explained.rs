//! `ahead top --explain`: sentences about each open file of a process.

use super::columns::path;
use ahead_cli::messages;
use ahead_process::Signals;
use ahead_report::table::Screen;
use ahead_report::text::printable;
use ahead_sys::block::disk_setting;
use ahead_top::{
    DecisionSource, Explanation, Filter, OpenFile, Sampler, SortKey, explain, file_json, keep, major_faults,
    mapping_advice,
};
use serde_json::{Value, json};
use std::io::Write;
use std::process::ExitCode;
use std::time::Duration;

pub fn run(
    pid: u32,
    interval: Duration,
    source: Option<DecisionSource>,
    filter: &Filter,
    limit: Option<usize>,
    is_json: bool,
) -> anyhow::Result<ExitCode> {
    let signals = Signals::take()?;
    let mut sampler = Sampler::new(true, source)?;
    sampler.missing().iter().for_each(|missing| messages::print(&format!("not seen: {missing}")));
    let faults_before = major_faults(pid);
    super::wait(&signals, interval)?;
    let mut sample = sampler.sample(filter)?;
    keep(&mut sample.files, SortKey::Wait, limit.unwrap_or(usize::MAX));
    let faults = major_faults(pid).zip(faults_before).and_then(|(now, before)| now.checked_sub(before));
    let advice = mapping_advice(pid);
    for file in &mut sample.files {
        file.look_up_path();
        file.mapping_advice = advice.get(&(file.device, file.inode_number)).copied();
    }
    let explained: Vec<Explanation> =
        sample.files.iter().map(|file| explain(file, sample.interval, request_bytes(file), faults)).collect();
    let files = sample.files.iter().zip(&explained);
    let text = match is_json {
        true => {
            format!(
                "{:#}\n",
                Value::Array(files.map(|(file, said)| as_json(file, said, sample.interval, faults)).collect())
            )
        }
        false if explained.is_empty() => {
            format!("process {pid} has no open file that is read through the page cache\n")
        }
        false => files.map(|(file, said)| as_text(file, said, Screen::stdout())).collect::<Vec<_>>().join("\n"),
    };
    std::io::stdout().write_all(text.as_bytes())?;
    Ok(ExitCode::SUCCESS)
}

/// Largest request of the disk.
fn request_bytes(file: &OpenFile) -> Option<u64> {
    Some(disk_setting(file.device, "max_sectors_kb")?.parse::<u64>().ok()? * 1024)
}

fn as_json(file: &OpenFile, said: &Explanation, interval: Option<Duration>, faults: Option<u64>) -> Value {
    let mut value = file_json(file, interval);
    for (key, text) in [("now", &said.now), ("why", &said.why), ("seen", &said.seen), ("better", &said.better)] {
        value[key] = json!(text);
    }
    value["process_major_faults"] = json!(faults);
    value
}

fn as_text(file: &OpenFile, said: &Explanation, screen: Screen) -> String {
    let descriptor = file.descriptor.map_or_else(|| "no descriptor".into(), |number| format!("descriptor {number}"));
    let heading = format!("{} ({}, {descriptor}, {})", path(file), printable(&file.comm), file.pattern);
    let mut text = screen.heading(&heading) + "\n";
    for (name, sentence) in [("now", &said.now), ("why", &said.why), ("seen", &said.seen), ("better", &said.better)] {
        text += &format!("  {name:<7} {sentence}\n");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn explanation_has_four_lines_below_its_file() {
        let file =
            OpenFile { path: Some(b"/a\x1b".into()), descriptor: Some(3), comm: b"dd".into(), ..OpenFile::default() };
        let said = explain(&file, None, None, None);
        let text = as_text(&file, &said, Screen::default());
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], "/a\\u{1b} (dd, descriptor 3, unknown)");
        for (line, name) in lines[1..].iter().zip(["now", "why", "seen", "better"]) {
            assert!(line.starts_with(&format!("  {name:<7} ")), "{text}");
        }
        let value = as_json(&file, &said, None, Some(7));
        assert_eq!((&value["better"], &value["pid"]), (&json!(said.better), &json!(0)));
        assert_eq!(value["process_major_faults"], 7);
    }
}
