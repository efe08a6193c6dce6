//! Which model a disk has: a builtin one by name, or a user's own, whose text travels with the disk.

use crate::{Error, Result};
use ahead_device::Model;
use ahead_sys::directory;
use serde::{Deserialize, Serialize};
use std::io::Read;
use std::path::Path;

/// The largest model file that is read, bytes. A model is some dozen lines.
const MODEL_MAX_BYTES: u64 = 64 << 10;

/// Where a disk's model comes from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ModelSource {
    /// The builtin model's name, or the path of the user's own as it was given.
    pub name: String,
    /// The text of the user's own.
    pub toml: Option<String>,
}

impl ModelSource {
    /// A builtin model's name or the path of a TOML file, checked.
    pub fn load(text: &str) -> Result<ModelSource> {
        if Model::builtin(text).is_some() {
            return Ok(ModelSource { name: text.into(), toml: None });
        }
        let path = Path::new(text);
        if !path.exists() {
            return Err(Error::Usage(format!(
                "{text:?} is neither a model ({}) nor a TOML file",
                [&Model::BUILTIN[..], &Model::PAPERS].concat().join(", ")
            )));
        }
        let no_model = || Error::Invalid(format!("{text} is not a model: give a TOML file of at most 64 KiB"));
        let failed = |e: std::io::Error| match e.kind() {
            std::io::ErrorKind::InvalidInput => no_model(),
            _ => Error::io(format!("read {text}"), e),
        };
        // Opened once: it may be another file, or a longer one, at any time.
        let file = directory::open_regular_file(path, false).map_err(failed)?;
        let mut toml = String::new();
        file.take(MODEL_MAX_BYTES + 1).read_to_string(&mut toml).map_err(failed)?;
        if toml.len() as u64 > MODEL_MAX_BYTES {
            return Err(no_model());
        }
        let source = ModelSource { name: text.into(), toml: Some(toml) };
        source.model()?;
        Ok(source)
    }

    /// The model itself.
    pub fn model(&self) -> Result<Model> {
        let invalid = |why: String| Error::Invalid(format!("model {}: {why}", self.name));
        match &self.toml {
            Some(text) => Model::from_toml(text).map_err(|e| invalid(e.to_string())),
            None => Model::builtin(&self.name).ok_or_else(|| invalid("there is no such builtin model".into())),
        }
    }
}
