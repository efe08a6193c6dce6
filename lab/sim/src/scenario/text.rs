//! Reads a scenario from TOML; `docs/reference/scenario.md` describes every field. The input is untrusted: this module
//! checks its values, and errors name their line.

mod lines;
mod numbers;
mod workload;

use super::check::MOST_STREAMS;
use super::{Blame, Disk, MAX_TEXT_BYTES, Scenario, ScenarioError, Workload};
use crate::layout::Scheme;
use crate::machine::{Costs, DirtyLimits, Settings};
use crate::queue::Scheduler;
use crate::recording::{NoRecordings, Recordings};
use ahead_device::Model;
use ahead_policy::{Choice, PAGE_BYTES};
use lines::{Lines, POLICIES_ARE, WORKLOAD_IS};
use numbers::{Amount, Slice, Whole};
use serde::Deserialize;
use std::path::Path;
use workload::WorkloadText;

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Text {
    #[serde(default)]
    name: String,
    #[serde(default)]
    policies: Option<Vec<toml::Spanned<String>>>,
    #[serde(default)]
    machine: MachineText,
    #[serde(default)]
    disk: DiskText,
    workload: Vec<toml::Spanned<WorkloadText>>,
    #[serde(default)]
    seed: Whole<0, 4_294_967_295>,
}

/// The default costs are those of a present machine: 10 GB/s of copying, half a microsecond for a fault.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct MachineText {
    memory_mb: Whole<1, 1_048_576>,
    copy_us_per_page: Amount<1_000_000>,
    call_us: Amount<1_000_000>,
    fault_us: Amount<1_000_000>,
    request_us_per_page: Amount<1_000_000>,
    pio_us_per_page: Amount<1_000_000>,
    fault_around_pages: toml::Spanned<Whole<1, 512>>,
    dirty_background_ratio: Whole<0, 100>,
    dirty_ratio: Whole<0, 100>,
    dirty_expire_ms: Whole<0, 1_000_000_000>,
    dirty_writeback_ms: Whole<1, 1_000_000_000>,
    slice_ms: Slice,
    end_s: Whole<1, 1_000_000_000>,
}

impl Default for MachineText {
    fn default() -> Self {
        MachineText {
            memory_mb: Whole(1024),
            copy_us_per_page: Amount(0.4),
            call_us: Amount(0.2),
            fault_us: Amount(0.5),
            request_us_per_page: Amount(0.2),
            pio_us_per_page: Amount(0.0),
            fault_around_pages: toml::Spanned::new(0..0, Whole(16)),
            dirty_background_ratio: Whole(10),
            dirty_ratio: Whole(20),
            dirty_expire_ms: Whole(30_000),
            dirty_writeback_ms: Whole(5_000),
            slice_ms: Slice(3.0),
            end_s: Whole(1_000_000),
        }
    }
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct DiskText {
    model: toml::Spanned<String>,
    read_ahead_kb: Whole<0, 4_194_304>,
    nr_requests: Option<Whole<1, 65_536>>,
    max_request_kb: Option<Whole<4, 65_536>>,
    scheduler: Option<toml::Spanned<String>>,
    turnaround_us: Option<toml::Spanned<Amount<1_000_000>>>,
    layout: Scheme,
    folio_order: Option<toml::Spanned<Whole<0, 9>>>,
}

impl Default for DiskText {
    fn default() -> Self {
        DiskText {
            model: toml::Spanned::new(0..0, "hdd".into()),
            read_ahead_kb: Whole(128),
            nr_requests: None,
            max_request_kb: None,
            scheduler: None,
            turnaround_us: None,
            layout: Scheme::Extents,
            folio_order: None,
        }
    }
}

impl Scenario {
    /// The line of a field in the scenario's text, or the line of the field's table. `None`: the text does not have the
    /// field (or the field is a policy).
    pub fn line_of(&self, blame: Blame) -> Option<usize> {
        let lines = Lines(&self.text);
        match blame {
            Blame::Policy(_) => None,
            Blame::Machine(field) => lines.key("[machine]", 0, field),
            Blame::Disk(field) => lines.key("[disk]", 0, field),
            Blame::Workload(index, field) => lines.key("[[workload]]", index, field),
        }
    }

    /// Reads a scenario. Paths of models are relative to `directory`.
    ///
    /// Errors: every [`ScenarioError`].
    pub fn from_toml(text: &str, directory: &Path) -> Result<Scenario, ScenarioError> {
        Scenario::from_toml_with(text, directory, &NoRecordings)
    }

    /// The same with workloads from recordings. Their paths are relative to `directory`, too.
    ///
    /// Errors: every [`ScenarioError`].
    pub fn from_toml_with(
        text: &str,
        directory: &Path,
        recordings: &dyn Recordings,
    ) -> Result<Scenario, ScenarioError> {
        if text.len() > MAX_TEXT_BYTES {
            return Err(ScenarioError::TooLarge);
        }
        let lines = Lines(text);
        let parsed: Text = toml::from_str(text).map_err(|error| {
            let at = error.span().map_or(0, |span| span.start);
            ScenarioError::Field { line: lines.of(at), message: lines.explain(at, error.message()) }
        })?;
        let policies = policies(&parsed, &lines)?;
        let workloads = workloads(&parsed, &lines, directory, recordings)?;
        check_machine(&parsed.machine, &lines)?;
        let scenario = Scenario {
            name: parsed.name,
            text: text.into(),
            policies,
            disk: disk(&parsed.disk, &lines, directory)?,
            settings: settings(&parsed.machine),
            memory_pages: memory_pages(&parsed.machine),
            workloads,
        };
        scenario.check().or_else(|impossible| {
            let at = match impossible.blame {
                Blame::Policy(index) => {
                    parsed.policies.as_ref().and_then(|names| names.get(index)).map(|name| lines.of(name.span().start))
                }
                other => scenario.line_of(other),
            };
            lines.wrong_at(at, impossible.message)
        })?;
        Ok(scenario)
    }
}

fn policies(parsed: &Text, lines: &Lines) -> Result<Vec<Choice>, ScenarioError> {
    let Some(names) = &parsed.policies else { return Ok(Vec::new()) };
    let policies = names
        .iter()
        .map(|name| ahead_policy::named(name.get_ref()).or_else(|error| lines.wrong(name.span(), error.to_string())));
    let policies: Vec<Choice> = policies.collect::<Result<_, _>>()?;
    if policies.is_empty() {
        return lines.wrong(0..0, format!("policies is empty; {POLICIES_ARE}"));
    }
    for (index, name) in names.iter().enumerate() {
        if policies[..index].iter().any(|before| before.to_string() == policies[index].to_string()) {
            return lines.wrong(name.span(), format!("{} is named twice: once is enough", policies[index]));
        }
    }
    Ok(policies)
}

fn workloads(
    parsed: &Text,
    lines: &Lines,
    directory: &Path,
    recordings: &dyn Recordings,
) -> Result<Vec<Workload>, ScenarioError> {
    let of_all = (parsed.seed.0 as u32, parsed.disk.layout);
    let mut streams = 0_u64;
    let workloads = parsed.workload.iter().map(|workload| {
        // Checked before memory is allocated for the streams.
        streams = streams.saturating_add(workload.get_ref().streams());
        if streams > MOST_STREAMS as u64 {
            let message = format!("there are at most {MOST_STREAMS} streams, here {streams}");
            return lines.wrong_in(workload, &["streams"], message);
        }
        workload::workload(workload, of_all, lines, directory, recordings)
    });
    let workloads: Vec<Workload> = workloads.collect::<Result<_, _>>()?;
    if workloads.is_empty() {
        return lines.wrong(0..0, format!("there is no workload; {WORKLOAD_IS}"));
    }
    Ok(workloads)
}

fn check_machine(machine: &MachineText, lines: &Lines) -> Result<(), ScenarioError> {
    if machine.dirty_background_ratio.0 > machine.dirty_ratio.0 {
        let at = lines
            .written("[machine]", 0, "dirty_background_ratio")
            .or_else(|| lines.key("[machine]", 0, "dirty_ratio"));
        let message = "dirty_background_ratio is at most dirty_ratio, or writers wait before anything is written";
        return lines.wrong_at(at, message);
    }
    if !machine.fault_around_pages.get_ref().0.is_power_of_two() {
        let message = "fault_around_pages is a power of two: the pages around a fault are an aligned group";
        return lines.wrong(machine.fault_around_pages.span(), message);
    }
    Ok(())
}

fn model(disk: &DiskText, lines: &Lines, directory: &Path) -> Result<Model, ScenarioError> {
    let name = disk.model.get_ref();
    if let Some(model) = Model::builtin(name) {
        return Ok(model);
    }
    let path = directory.join(name);
    let known = [&Model::BUILTIN[..], &Model::PAPERS].concat().join(", ");
    match super::read_small(&path) {
        Ok(text) => Model::from_toml(&text)
            .or_else(|error| lines.wrong(disk.model.span(), format!("{}: {error}", path.display()))),
        Err(error) => lines.wrong(
            disk.model.span(),
            format!("{name:?} is neither a model ({known}) nor a file that can be read: {error}"),
        ),
    }
}

fn disk(text: &DiskText, lines: &Lines, directory: &Path) -> Result<Disk, ScenarioError> {
    let scheduler = match &text.scheduler {
        None => None,
        Some(name) => match Scheduler::NAMED.iter().find(|(known, _)| known == name.get_ref()) {
            Some((_, scheduler)) => Some(*scheduler),
            None => {
                let known = Scheduler::NAMED.map(|(name, _)| name).join(", ");
                return lines.wrong(name.span(), format!("{:?} is no scheduler; there are {known}", name.get_ref()));
            }
        },
    };
    let turnaround_ns = match (&text.turnaround_us, scheduler) {
        (None, _) => 0,
        (Some(us), Some(Scheduler::Cfq)) => (us.get_ref().0 * 1e3) as u64,
        (Some(us), _) => return lines.wrong(us.span(), "turnaround_us is for scheduler = \"cfq\""),
    };
    if !text.read_ahead_kb.0.is_multiple_of(4) {
        let message = "a window has whole pages: read_ahead_kb is a multiple of 4";
        return lines.wrong_at(lines.key("[disk]", 0, "read_ahead_kb"), message);
    }
    let folio_order = match (&text.folio_order, text.layout) {
        (None, Scheme::Extents) => 9,
        (None, _) => 0,
        (Some(order), Scheme::Ext2 | Scheme::Ext2Kib) if order.get_ref().0 > 0 => {
            return lines.wrong(order.span(), "ext2 takes single pages: folio_order is 0 with layout = \"ext2\"");
        }
        (Some(order), _) => order.get_ref().0 as u8,
    };
    Ok(Disk {
        model: model(text, lines, directory)?,
        window_pages: text.read_ahead_kb.0 / 4,
        folio_order,
        layout: text.layout,
        nr_requests: text.nr_requests.map(|number| number.0 as u32),
        longest_bytes: text.max_request_kb.map(|kb| kb.0 << 10),
        scheduler,
        turnaround_ns,
    })
}

fn memory_pages(machine: &MachineText) -> u64 {
    (machine.memory_mb.0 << 20) / PAGE_BYTES
}

fn settings(machine: &MachineText) -> Settings {
    let costs = Costs {
        copy_per_page_ns: machine.copy_us_per_page.0 * 1e3,
        call_ns: machine.call_us.0 * 1e3,
        fault_ns: machine.fault_us.0 * 1e3,
        request_per_page_ns: machine.request_us_per_page.0 * 1e3,
        pio_per_page_ns: machine.pio_us_per_page.0 * 1e3,
    };
    Settings {
        costs,
        slice_ns: (machine.slice_ms.0 * 1e6) as u64,
        fault_around_pages: machine.fault_around_pages.get_ref().0,
        dirty: DirtyLimits {
            background_pages: memory_pages(machine) * machine.dirty_background_ratio.0 / 100,
            most_pages: memory_pages(machine) * machine.dirty_ratio.0 / 100,
            expire_ns: machine.dirty_expire_ms.0 * 1_000_000,
            interval_ns: machine.dirty_writeback_ms.0 * 1_000_000,
        },
        end_ns: machine.end_s.0 * 1_000_000_000,
    }
}
