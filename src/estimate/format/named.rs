//! A quantisation by name: as engines' `--quantization` has it, as people write it, as GGUF files are called.

use super::super::{EngineId, Unknown};
use super::{FileType, Format, Padding, Scheme};
use crate::tables::read_table;
use serde::Deserialize;
use std::sync::LazyLock;

/// The names that are understood, for a message.
pub const NAMES: &str = "none, fp8, fp8_channel, fp8_block, int8_channel, awq, gptq, gptq8, w4a16, nf4, \
     bitsandbytes, bnb_int8, mxfp4, mxfp8, nvfp4, or a GGUF file type such as Q4_K_M";

/// The table that ships.
const TABLE: &str = include_str!("../../../configs/quantization-names.yaml");

/// One row of the table; the file describes each field.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Row {
    names: Vec<String>,
    /// The one engine that means this by the names; without it all others do.
    engine: Option<String>,
    format: Format,
    experts_format: Option<Format>,
    #[serde(default)]
    experts_only: bool,
    #[serde(default)]
    padding: Padding,
    #[serde(default)]
    dynamic: bool,
}

/// Read once; empty where the file cannot be read, which a test rules out.
static ROWS: LazyLock<Vec<Row>> = LazyLock::new(|| read_table(TABLE));

const DYNAMIC: &str =
    "a dynamic 4-bit checkpoint leaves some modules in 16 bits: which, only its config.json tells";

/// Reads a name, as this engine means it.
///
/// # Errors
///
/// A name that is not known.
pub fn read(name: &str, engine: EngineId) -> Result<Scheme, Unknown> {
    let name = name.trim().to_ascii_lowercase().replace('-', "_");
    let (stem, experts_only) = match name.strip_suffix("_experts") {
        Some(stem) => (stem, true),
        None => (name.as_str(), false),
    };
    let named = || ROWS.iter().filter(|r| r.names.iter().any(|n| n == stem));
    let own = named().find(|r| r.engine.as_deref() == Some(engine.name));
    let row = own.or_else(|| named().find(|r| r.engine.is_none()));
    let mut scheme = if let Some(row) = row {
        let format = row.experts_format.filter(|_| experts_only);
        Scheme {
            experts_only: row.experts_only,
            padding: row.padding,
            dynamic: row.dynamic,
            warnings: row
                .dynamic
                .then(|| DYNAMIC.to_owned())
                .into_iter()
                .collect(),
            ..Scheme::all(format.unwrap_or(row.format))
        }
    } else if let Some(file) = FileType::of_name(stem) {
        Scheme {
            file_type: Some(file),
            name: format!("GGUF {}", stem.to_ascii_uppercase()),
            ..Scheme::all(Format::Gguf(file.base()))
        }
    } else {
        let what = format!("the quantisation `{name}` is not known");
        return Err(Unknown::new(what).hint(format!("known are {NAMES}")));
    };
    scheme.experts_only |= experts_only;
    Ok(scheme)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(name: &str) -> Result<Scheme, Unknown> {
        super::read(name, EngineId::Vllm)
    }

    #[test]
    fn every_row_is_read_and_each_name_is_in_one() {
        let rows: Vec<Row> = serde_yaml::from_str(TABLE).unwrap();
        let all = rows.iter().filter(|r| r.engine.is_none());
        let mut names: Vec<&String> = all.flat_map(|r| &r.names).collect();
        let all = names.len();
        names.sort();
        names.dedup();
        assert_eq!(names.len(), all);
        for name in NAMES.split(", ").filter(|n| !n.contains(' ')) {
            assert!(
                names.iter().any(|n| *n == name),
                "{name} is in the message alone"
            );
        }
    }

    #[test]
    fn a_name_means_what_its_engine_means_by_it() {
        let base = |name, engine| super::read(name, engine).unwrap().base;
        let int8 = base("bitsandbytes", EngineId::Tgi);
        assert_eq!(int8, Format::BnbInt8);
        let nf4 = base("bitsandbytes", EngineId::Vllm);
        assert_eq!(nf4, Format::Nf4 { double: true });
        assert_eq!(base("bitsandbytes-nf4", EngineId::Tgi), nf4);
        assert_eq!(base("bitsandbytes-fp4", EngineId::Tgi), nf4);
    }

    #[test]
    fn engines_and_peoples_names_lead_to_the_same_format() {
        assert_eq!(read("AWQ").unwrap().base, read("awq_marlin").unwrap().base);
        assert_eq!(
            read("bitsandbytes").unwrap().base,
            read("nf4").unwrap().base
        );
        assert!(read("w4a16_experts").unwrap().experts_only);
        assert!(read("nvfp4_experts").unwrap().experts_only);
        assert_eq!(read("Q4_K_M").unwrap().name, "GGUF Q4_K_M");
        assert_eq!(read("none").unwrap().base, Format::Plain);
    }

    #[test]
    fn a_name_that_is_not_known_is_no_guess() {
        for name in ["exl2", "torchao", "hqq", "iq2_xxs_ud", "3bit"] {
            let unknown = read(name).unwrap_err();
            assert!(unknown.what.contains(name), "{unknown}");
            assert!(unknown.hint.unwrap().contains("gptq"));
        }
    }
}
