//! The runs behind claims: a scenario with changes, a policy, and the counters as a value.

use super::value::{Fault, Format, List, Number, Record, Text, Value};
use crate::{Asked, Filesystem, Live, PaperError};
use ahead_device::Model;
use ahead_policy::PAGE_BYTES;
use ahead_sim::{Counters, Scenario};
use std::collections::BTreeMap;
use std::path::Path;

/// Files beside a document of claims: their names and texts.
pub(crate) type Files = &'static [(&'static str, &'static str)];

/// A model in Rust, for what no scenario can describe.
#[derive(Clone, Copy)]
pub(crate) enum Experiment {
    /// In the simulator.
    Simulated(fn(&Setup) -> Result<Value, PaperError>),
    /// On the real page cache.
    Real(fn(&Setup, &dyn Live) -> Result<Value, PaperError>),
}

/// What a run is given.
#[derive(Clone, Debug)]
pub(crate) struct Setup {
    /// Machine, disk and workload.
    pub scenario: Scenario,
    /// The name of the policy.
    pub policy: String,
    /// Arguments of a model in Rust.
    pub arguments: BTreeMap<String, Value>,
}

impl Setup {
    /// An argument. Errors: there is none of this name.
    pub(crate) fn argument(&self, name: &str) -> Result<&Value, Fault> {
        self.arguments.get(name).ok_or_else(|| Fault::Wrong(format!("the argument {name} is missing")))
    }

    /// An argument that is a count of things.
    pub(crate) fn whole(&self, name: &str) -> Result<u64, Fault> {
        self.argument(name)?.whole()
    }

    /// An argument that is a text.
    pub(crate) fn text(&self, name: &str) -> Result<String, Fault> {
        Ok(self.argument(name)?.show(Format::default()))
    }

    /// An argument that is a list of texts.
    pub(crate) fn texts(&self, name: &str) -> Result<Vec<String>, Fault> {
        Ok(self.argument(name)?.list()?.iter().map(|value| value.show(Format::default())).collect())
    }

    /// The run of the scenario itself.
    pub(crate) fn run(&self) -> Result<Value, PaperError> {
        let scenario: Value = toml::from_str(&self.scenario.text).map_err(|error| Fault::Wrong(error.to_string()))?;
        let rate = Number(self.scenario.disk.model.bandwidth_bytes_per_s());
        let counters = counters(&self.scenario.run(&ahead_policy::named(&self.policy)?)?);
        Ok(counters.with("scenario", scenario).with("disk_bytes_per_s", rate))
    }

    /// The same on the real page cache; the policy is that of the running kernel.
    pub(crate) fn run_live(&self, live: &dyn Live, filesystem: &str, each: bool) -> Result<Value, PaperError> {
        let known = ["ext2", "ext4"].into_iter().find(|name| *name == filesystem);
        let name = known.ok_or_else(|| Fault::Wrong(format!("no paper uses the file system {filesystem:?}")))?;
        let filesystem = Filesystem { name, block_bytes: PAGE_BYTES };
        let seen = live.run(&Asked { scenario: &self.scenario, filesystem, each })?;
        let rate = seen.read_bytes as f64 * 1e9 / seen.elapsed_ns.max(1) as f64;
        Ok(Value::record([
            ("elapsed_ns", Number(seen.elapsed_ns as f64)),
            ("user_ns", Number(seen.user_ns as f64)),
            ("system_ns", Number(seen.system_ns as f64)),
            ("bytes_per_s", Number(rate)),
            ("each_ns", Value::numbers(seen.each_ns.iter().map(|time_ns| *time_ns as f64))),
        ]))
    }
}

/// The counters of a run, and what follows from them.
pub(crate) fn counters(counters: &Counters) -> Value {
    Value::of(counters)
        .with("idle_ns", Number(counters.idle_ns() as f64))
        .with("bytes_per_s", Number(counters.throughput_bytes_per_s()))
}

/// A scenario of these files with other values of some fields. An empty text removes a field. The disk's model may be one of the files;
/// `model.FIELD` is a field of it. `memory_pages` and `end_ms` are finer than the fields of a scenario.
///
/// Errors: there is no such file; a field is wrong.
pub(crate) fn scenario(files: Files, name: &str, changes: &BTreeMap<String, Value>) -> Result<Scenario, PaperError> {
    let text = file(files, name).ok_or_else(|| Fault::Wrong(format!("there is no scenario {name:?}")))?;
    let (of_model, of_scenario): (Vec<_>, Vec<_>) = changes.iter().partition(|(field, _)| field.starts_with("model."));
    let (of_text, finer): (Vec<_>, Vec<_>) = of_scenario.into_iter().partition(|(field, _)| field.contains('.'));
    let mut table = changed(name, text, &of_text)?;
    let disk = table.get_mut("disk").and_then(toml::Value::as_table_mut);
    let model_name = disk.as_ref().and_then(|disk| disk.get("model")?.as_str()).unwrap_or("hdd").to_owned();
    let own = file(files, &model_name);
    if let (Some(_), Some(disk)) = (own, disk) {
        disk.insert("model".into(), "hdd".into());
    }
    let parsed = Scenario::from_toml(&table.to_string(), Path::new("."));
    let mut scenario = parsed.map_err(|error| Fault::Wrong(format!("{name}: {error}")))?;
    if own.is_some() || !of_model.is_empty() {
        let text = own.or(Model::builtin_toml(&model_name)).unwrap_or_default();
        let model = Model::from_toml(&changed(&model_name, text, &of_model)?.to_string());
        scenario.disk.model = model.map_err(|error| Fault::Wrong(format!("{model_name}: {error}")))?;
    }
    for (field, value) in finer {
        match field.as_str() {
            "memory_pages" => scenario.memory_pages = value.whole()?,
            "end_ms" => scenario.settings.end_ns = value.whole()? * 1_000_000,
            _ => return Err(Fault::Wrong(format!("unknown field {field:?} of a scenario")).into()),
        }
    }
    Ok(scenario)
}

/// The table of a file with these changes.
fn changed(name: &str, text: &str, changes: &[(&String, &Value)]) -> Result<toml::Table, Fault> {
    let parsed: Result<toml::Table, toml::de::Error> = text.parse();
    let mut table = parsed.map_err(|error| Fault::Wrong(format!("{name}: {error}")))?;
    for (field, value) in changes {
        let path = field.strip_prefix("model.").unwrap_or(field);
        change(&mut table, &path.split('.').map(str::to_owned).collect::<Vec<_>>(), value)?;
    }
    Ok(table)
}

fn file(files: Files, name: &str) -> Option<&'static str> {
    files.iter().find(|(file, _)| *file == name).map(|(_, text)| *text)
}

/// Changes a field of a table, or of the first table of an array of tables (`workload.block_kb`).
fn change(table: &mut toml::Table, path: &[String], value: &Value) -> Result<(), Fault> {
    match path {
        [] => Ok(()),
        [last] if *value == Text(String::new()) => {
            table.remove(last);
            Ok(())
        }
        [last] => {
            table.insert(last.clone(), in_toml(value)?);
            Ok(())
        }
        [first, rest @ ..] => match table.get_mut(first) {
            Some(toml::Value::Table(inner)) => change(inner, rest, value),
            Some(toml::Value::Array(list)) => match list.first_mut() {
                Some(toml::Value::Table(inner)) => change(inner, rest, value),
                _ => Err(Fault::Wrong(format!("{first} has no fields"))),
            },
            _ => Err(Fault::Wrong(format!("there is no {first} in the scenario"))),
        },
    }
}

fn in_toml(value: &Value) -> Result<toml::Value, Fault> {
    Ok(match value {
        Number(number) if number.fract() == 0.0 => toml::Value::Integer(*number as i64),
        Number(number) => toml::Value::Float(*number),
        Text(text) => toml::Value::String(text.clone()),
        Value::Truth(truth) => toml::Value::Boolean(*truth),
        List(_) | Record(_) => return Err(Fault::Wrong("a field of a scenario is a number or a text".into())),
    })
}
