//! The model that is asked about: by name, from files, or from flags.

use super::unknown;
use crate::cli::EstimateArgs;
use crate::error::Failure;
use crate::estimate::Model;
use crate::estimate::headers::{Headers, gguf_model};
use crate::estimate::model::{Flags, from_config, from_flags};
use crate::models::{self, Found, Reach, headers, hub::Keep};
use crate::store::{read_cached, write_cached};

/// A model, and the headers of its files where these lie here.
pub struct Loaded {
    /// The model.
    pub model: Model,
    /// What its files hold, by their headers.
    pub headers: Option<Headers>,
    /// The quantisation that the model's name means.
    pub quantization: Option<String>,
    /// Sentences.
    pub warnings: Vec<String>,
}

impl Loaded {
    pub fn without_files(model: Model) -> Loaded {
        Loaded {
            model,
            headers: None,
            quantization: None,
            warnings: Vec::new(),
        }
    }
}

/// The model of the flags; `name` is the word, the flag's or the engine's own command line's.
///
/// # Errors
/// No model is named, none is known so, or its configuration cannot be used.
pub fn of(args: &EstimateArgs, name: Option<&str>) -> Result<Loaded, Failure> {
    let flags = Flags {
        parameters: args.model_params,
        layers: args.num_layers,
        heads: args.num_heads,
        kv_heads: args.num_kv_heads,
        head_dim: args.head_dim,
        hidden: args.hidden_size,
        vocab: args.vocab_size,
        intermediate: args.intermediate_size,
    };
    match (&args.config, name) {
        (Some(_), _) if !flags.is_empty() => Err(Failure::usage(
            "--config and figures such as --num-layers both describe the model",
        )
        .hint("give one of the two")),
        (Some(file), name) => {
            let shown = file.display().to_string();
            from_found(&models::from_file(name.unwrap_or(&shown), file)?)
        }
        (None, name) if !flags.is_empty() => {
            let model = from_flags(name.unwrap_or("a model of these figures"), &flags);
            Ok(Loaded::without_files(model.map_err(unknown)?))
        }
        (None, Some(name)) => find(name, args.online),
        (None, None) => Err(Failure::usage("no model is named").hint(
            "name one, as in `plimsoll estimate Qwen/Qwen3-8B --gpu H100`; `plimsoll models` lists those that ship",
        )),
    }
}

/// A model by its name, its folder or its file; `online`: a hub may be asked for it.
///
/// # Errors
/// There is none, or its configuration cannot be used.
pub fn find(name: &str, online: bool) -> Result<Loaded, Failure> {
    let keep = &InCache;
    from_found(&models::find_with(name, &Reach { keep, online })?)
}

/// Keeps the answers of a hub in the user's cache folder.
struct InCache;

/// The folder of it.
const KIND: &str = "hub";

impl Keep for InCache {
    fn get(&self, key: &str) -> Option<String> {
        read_cached(KIND, key)
    }

    fn put(&self, key: &str, text: &str) {
        write_cached(KIND, key, text);
    }
}

fn from_found(found: &Found) -> Result<Loaded, Failure> {
    if let Some(file) = &found.gguf {
        let (gguf, headers) = headers::read_gguf(file).map_err(|e| {
            // The cause alone: the sentence names the file.
            Failure::environment(format!("cannot read the header of `{}`", file.display()))
                .caused_by(e.source)
        })?;
        let model = gguf_model::model(&gguf, &found.name, &found.source).map_err(unknown)?;
        return Ok(Loaded {
            headers: Some(headers),
            ..Loaded::without_files(model)
        });
    }
    let mut model = from_config(&found.name, &found.config, &found.source).map_err(unknown)?;
    model.lends_positions = found.lends_positions;
    let mut loaded = Loaded {
        headers: found.headers.clone(),
        quantization: found.quantization.clone(),
        warnings: found.note.iter().cloned().collect(),
        ..Loaded::without_files(model)
    };
    if let Some(folder) = &found.directory {
        match headers::read_folder(folder) {
            Ok(headers) => loaded.headers = Some(headers),
            Err(e) => loaded.warnings.push(format!(
                "the weights are computed from the configuration, as its files cannot be read: {e}"
            )),
        }
    }
    Ok(loaded)
}
