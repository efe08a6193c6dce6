//! The model of a disk: a builtin one by name, or a user's own, whose text is stored with the disk.

use crate::{Error, Result};
use ahead_device::Model;
use ahead_sys::directory;
use serde::{Deserialize, Serialize};
use std::io::Read;
use std::path::Path;

/// Maximum size of a model file. A model has some dozen lines. Unit: bytes.
const MODEL_MAX_BYTES: u64 = 64 << 10;

/// The source of a disk's model.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ModelSource {
    /// The builtin model's name, or the path of a user's model as it was given.
    pub name: String,
    /// The text of a user's model.
    pub toml: Option<String>,
}

impl ModelSource {
    /// Loads and checks a builtin model's name or the path of a TOML file.
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
        let invalid = || Error::Invalid(format!("{text} is not a model: give a TOML file of at most 64 KiB"));
        let failed = |e: std::io::Error| match e.kind() {
            std::io::ErrorKind::InvalidInput => invalid(),
            _ => Error::io(format!("read {text}"), e),
        };
        // Opened once: the path may lead to another file later.
        let file = directory::open_regular_file(path, false).map_err(failed)?;
        let mut toml = String::new();
        file.take(MODEL_MAX_BYTES + 1).read_to_string(&mut toml).map_err(failed)?;
        if toml.len() as u64 > MODEL_MAX_BYTES {
            return Err(invalid());
        }
        let source = ModelSource { name: text.into(), toml: Some(toml) };
        source.model()?;
        Ok(source)
    }

    /// The parsed model.
    pub fn model(&self) -> Result<Model> {
        let invalid = |why: String| Error::Invalid(format!("model {}: {why}", self.name));
        match &self.toml {
            Some(text) => Model::from_toml(text).map_err(|e| invalid(e.to_string())),
            None => Model::builtin(&self.name).ok_or_else(|| invalid("no such builtin model".into())),
        }
    }
}
