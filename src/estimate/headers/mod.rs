//! Headers of model files: what tensors they hold, in how many bytes. The files may be hostile.

pub mod gguf;
pub mod gguf_model;
pub mod names;
pub mod safetensors;

use serde::{Deserialize, Serialize};

/// A tensor as a file lists it.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize)]
pub struct Stored {
    /// Its name in the file.
    pub name: String,
    /// Its type in the file's words: `BF16`, `F8_E4M3`, `Q4_K`.
    pub dtype: String,
    /// Its shape, outermost first.
    pub shape: Vec<u64>,
    /// Bytes.
    pub bytes: u64,
}

impl Stored {
    /// Values of it, as its type counts them.
    pub fn values(&self) -> u64 {
        self.shape.iter().fold(1u64, |n, d| n.saturating_mul(*d))
    }

    /// Bits of a value, where its type is a plain floating point number.
    pub fn float_bits(&self) -> Option<u64> {
        match self.dtype.as_str() {
            "F64" => Some(64),
            "F32" => Some(32),
            "F16" | "BF16" => Some(16),
            _ => None,
        }
    }
}

/// The tensors of all files of a model.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, Serialize)]
pub struct Headers {
    /// Each once.
    pub tensors: Vec<Stored>,
    /// They are of a GGUF file.
    pub gguf: bool,
    /// Where they were read.
    pub source: String,
}

/// Why a header cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum HeaderError {
    /// It ends too early: bytes that are needed at least.
    #[error(
        "the file ends within its header, of which at least {0} bytes are needed: download it again"
    )]
    Short(u64),
    /// It is not a header of this kind, or contradicts itself.
    #[error("{0}")]
    Bad(String),
}

impl HeaderError {
    fn bad(what: impl Into<String>) -> HeaderError {
        HeaderError::Bad(what.into())
    }
}

/// A name of a file's tensor for a message: of bounded length, on one line.
fn shown(name: &str) -> String {
    let clean = name.chars().map(|c| if c.is_control() { '?' } else { c });
    clean.take(80).collect()
}
