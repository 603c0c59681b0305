//! GGUF: the blocks that tensors are kept in, and which of them a file type such as `Q4_K_M` takes for which tensor.

use crate::tables::read_table;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::sync::LazyLock;

/// The table that ships.
const TABLE: &str = include_str!("../../../configs/gguf-blocks.yaml");

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Table {
    blocks: Vec<Row>,
    file_types: BTreeMap<String, Kind>,
}

/// A block; the file describes each field.
#[derive(Debug, PartialEq, Eq, Hash, Deserialize)]
#[serde(deny_unknown_fields)]
struct Row {
    name: String,
    number: u32,
    values: u64,
    bytes: u64,
    fallback: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Kind {
    base: String,
    mix: Mix,
    /// The block of the embedding and of the output layer, where it is none of the mixture's.
    ends: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Mix {
    /// One block for all.
    Uniform,
    /// Only the output layer is finer.
    Output,
    Small,
    Medium,
    Large,
    Two,
    /// Below three bits; finer values, outputs and first layers.
    Low,
    /// The same with finer ones of three bits.
    LowFiner,
    ThreeXxs,
    ThreeXs,
    ThreeS,
    ThreeM,
    /// Only experts have four bits.
    Experts,
}

/// Read once; empty where the file cannot be read, which a test rules out.
static READ: LazyLock<Table> = LazyLock::new(|| read_table(TABLE));

/// Numbers of 32 bits: what no other block is found for.
static F32: Row = Row {
    name: String::new(),
    number: 0,
    values: 1,
    bytes: 4,
    fallback: None,
};

/// A type of block.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Block(&'static Row);

impl Block {
    /// Numbers of 32 bits.
    pub fn float32() -> Block {
        Block::named("F32")
    }

    fn named(name: &str) -> Block {
        Block::of_name(name).unwrap_or(Block(&F32))
    }

    /// By ggml's number, as files have it.
    pub fn of_number(number: u32) -> Option<Block> {
        READ.blocks
            .iter()
            .find(|row| row.number == number)
            .map(Block)
    }

    /// By name, whatever the case.
    pub fn of_name(name: &str) -> Option<Block> {
        let mut rows = READ.blocks.iter();
        rows.find(|row| row.name.eq_ignore_ascii_case(name))
            .map(Block)
    }

    /// ggml's name.
    pub fn name(self) -> &'static str {
        &self.0.name
    }

    /// Values of a block.
    pub fn values(self) -> u64 {
        self.0.values
    }

    /// Bytes of a row of this number of values. Blocks do not go across rows.
    pub fn bytes(self, values: u64) -> u64 {
        values.div_ceil(self.0.values).saturating_mul(self.0.bytes)
    }

    /// Fewer than four bits a value, scales included.
    pub fn is_under_four_bits(self) -> bool {
        self.0.bytes.saturating_mul(2) < self.0.values
    }

    /// What llama.cpp takes instead where the block does not divide a row.
    fn fitting(self, columns: u64) -> Block {
        let smaller = || Block::named(self.0.fallback.as_deref().unwrap_or("F16"));
        if columns % self.values() == 0 {
            self
        } else if columns % smaller().values() == 0 {
            smaller()
        } else {
            Block::named("F16")
        }
    }
}

/// A file type: a block for most tensors, finer ones for those that matter more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct FileType {
    /// The block of most tensors.
    base: Block,
    mix: Mix,
    ends: Option<Block>,
    /// Its blocks are chosen by layer, in a way that its name does not tell.
    dynamic: bool,
}

/// What llama.cpp's mixtures depend on of a model.
#[derive(Debug, Clone, Copy, Default)]
pub struct Mixture {
    /// Layers.
    pub layers: u64,
    /// Query heads that share a key head.
    pub sharing: u64,
    /// Experts of a layer, or 0.
    pub experts: u64,
    /// The output layer is the embedding.
    pub tied: bool,
    /// Its experts are published in MXFP4, and stay so in files of every type (the files of gpt-oss).
    pub mxfp4_experts: bool,
}

impl FileType {
    /// `Q4_K_M`, `q8_0`, `F16`, …; `None`: a mixture with rules that are not known here.
    ///
    /// `UD-Q4_K_XL` is Unsloth's, near the plain type of the name; `i1-Q4_K_M` of a quantiser is Q4_K_M.
    pub fn of_name(name: &str) -> Option<FileType> {
        let name = name.to_ascii_uppercase().replace('-', "_");
        let name = name.trim_start_matches("GGUF_").trim_start_matches("I1_");
        if let Some(own) = name.strip_prefix("UD_") {
            return FileType::near(own);
        }
        FileType::listed(name).or_else(|| FileType::near(name).filter(|_| name.ends_with("_XL")))
    }

    fn listed(name: &str) -> Option<FileType> {
        let kind = READ.file_types.get(name)?;
        Some(FileType {
            base: Block::of_name(&kind.base)?,
            mix: kind.mix,
            ends: kind.ends.as_deref().and_then(Block::of_name),
            dynamic: false,
        })
    }

    /// A type with blocks that are chosen by layer: about as the plain one.
    fn near(name: &str) -> Option<FileType> {
        let plain = match name.strip_suffix("_XL") {
            Some("Q8_K") => "Q8_0",
            Some(plain) => plain,
            None => name,
        };
        Some(FileType {
            dynamic: true,
            ..FileType::listed(plain)?
        })
    }

    /// The end of a file's name that is a type, with what is before it: `qwen3-8b` and `ud-q4_k_xl`, in small letters.
    pub fn split_name(stem: &str) -> Option<(&str, &str)> {
        let (before, format) = stem.rsplit_once(['-', '.'])?;
        FileType::of_name(format)?;
        let (name, format) = match before.rsplit_once(['-', '.']) {
            Some((name, "ud" | "i1")) => (name, &stem[name.len() + 1..]),
            _ => (before, format),
        };
        Some((name, format))
    }

    /// Its blocks are chosen by layer, in a way that its name does not tell.
    pub fn is_dynamic(self) -> bool {
        self.dynamic
    }

    /// The block of most tensors.
    pub fn base(self) -> Block {
        self.base
    }

    /// The blocks of a tensor and the share of its rows that each has: keys and values may differ.
    ///
    /// Source: llama.cpp 2025, src/llama-quant.cpp, `llama_tensor_get_type`.
    pub fn blocks(self, role: &str, layer: Option<u32>, columns: u64, of: Mixture) -> [Block; 2] {
        let base = self.base.name();
        let i = u64::from(layer.unwrap_or(0));
        let whole = matches!(self.mix, Mix::Uniform | Mix::Experts);
        let first = i < of.layers / 8;
        let last = i >= 7 * of.layers / 8;
        let more = first || last || i.saturating_sub(of.layers / 8) % 3 == 2;
        // Keys and queries of a layer, where they are coarser than the rest.
        let looked_up = match self.mix {
            Mix::ThreeXs => Block::named("IQ3_XXS"),
            Mix::ThreeXxs => Block::named("IQ2_S"),
            _ => self.base,
        };
        if let Some(ends) = self.ends.filter(|_| matches!(role, "embed" | "lm_head")) {
            return [ends.fitting(columns); 2];
        }
        let block = match role {
            "exp_w13" | "exp_w2" if of.mxfp4_experts || self.mix == Mix::Experts => "MXFP4",
            "lm_head" if matches!(self.mix, Mix::Low | Mix::LowFiner | Mix::ThreeXxs) => "Q5_K",
            "embed" if of.tied && matches!(self.mix, Mix::Low | Mix::LowFiner | Mix::ThreeXxs) => {
                "Q5_K"
            }
            "lm_head" if !whole => "Q6_K",
            "embed" if !whole && of.tied => "Q6_K",
            "embed" if matches!(self.mix, Mix::Two | Mix::Low) => "Q2_K",
            "embed" if matches!(self.mix, Mix::LowFiner | Mix::ThreeXxs) => "IQ3_S",
            "q" => looked_up.name(),
            "gate_up" | "exp_w13" | "sh_gate_up" if self.mix == Mix::ThreeXs && !first && !last => {
                "IQ3_XXS"
            }
            "kv" | "qkv" if !whole && of.experts == 8 => "Q8_0",
            "kv" | "qkv" if !whole => {
                let shared = of.sharing >= 4;
                let value = match (base, self.mix) {
                    (_, Mix::Low | Mix::LowFiner) if shared || of.experts >= 4 => "Q4_K",
                    (_, Mix::Low) => "Q2_K",
                    (_, Mix::LowFiner) => "IQ3_S",
                    (_, Mix::ThreeXxs | Mix::ThreeXs | Mix::ThreeS) if shared => "Q4_K",
                    (_, Mix::ThreeM) => "Q4_K",
                    ("Q2_K", _) if of.sharing >= 4 => "Q4_K",
                    ("Q2_K", _) => "Q3_K",
                    ("Q3_K", Mix::Medium) if i < 2 => "Q5_K",
                    ("Q3_K", Mix::Medium) => "Q4_K",
                    ("Q3_K", Mix::Large) => "Q5_K",
                    ("Q4_K", Mix::Small) if i < 4 => "Q5_K",
                    ("IQ4_NL" | "IQ4_XS", _) if of.sharing >= 4 => "Q5_K",
                    ("Q4_K" | "Q5_K", Mix::Medium) if more => "Q6_K",
                    _ => base,
                };
                return [looked_up, Block::named(value)].map(|block| block.fitting(columns));
            }
            "o" => match (base, self.mix) {
                (_, Mix::Uniform) => base,
                ("IQ1_S" | "IQ1_M", _) => "IQ2_XXS",
                (_, Mix::LowFiner | Mix::ThreeXxs) => "IQ3_S",
                (_, Mix::ThreeM) => "Q4_K",
                ("Q2_K", _) => "Q3_K",
                ("Q3_K", Mix::Medium) => "Q4_K",
                ("Q3_K", Mix::Large) => "Q5_K",
                _ => base,
            },
            "down" | "exp_w2" | "sh_down" => match (base, self.mix) {
                ("Q2_K", _) => "Q3_K",
                (_, Mix::Low) if first => "Q2_K",
                (_, Mix::LowFiner) if first => "IQ3_S",
                (_, Mix::ThreeM) if first => "Q4_K",
                ("Q3_K", Mix::Medium) if i < of.layers / 16 => "Q5_K",
                ("Q3_K", Mix::Medium) => "Q4_K",
                ("Q3_K", Mix::Large) => "Q5_K",
                ("Q4_K", Mix::Small) if first => "Q5_K",
                ("IQ4_NL" | "IQ4_XS", _) if first => "Q5_K",
                ("Q4_K" | "Q5_K", Mix::Medium) if more => "Q6_K",
                _ => base,
            },
            _ => base,
        };
        [Block::named(block).fitting(columns); 2]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_names_lead_to_the_same_block() {
        let table: Table = serde_yaml::from_str(TABLE).unwrap();
        for row in &table.blocks {
            let block = Block::of_number(row.number);
            assert_eq!(block, Block::of_name(&row.name.to_lowercase()));
            assert_eq!(
                block.map(|b| b.0),
                Some(row),
                "a number or a name is in two rows"
            );
            assert!(
                row.fallback
                    .iter()
                    .all(|name| Block::of_name(name).is_some())
            );
        }
        for (name, kind) in &table.file_types {
            assert!(Block::of_name(&kind.base).is_some(), "{name}");
        }
        assert_eq!(Block::of_number(4), None, "Q4_2 is gone from the format");
        assert_eq!(Block::named("Q4_K").bytes(4096), 16 * 144);
    }

    /// Bytes of a model of 8 billion parameters, in GB, as bartowski's files of Llama 3.1 have them.
    #[test]
    fn files_are_as_large_as_published_ones() {
        let of = Mixture {
            layers: 32,
            sharing: 4,
            ..Mixture::default()
        };
        let gigabytes = |name: &str| {
            let file = FileType::of_name(name).unwrap();
            let part = |role, layer, rows: u64, columns: u64| {
                let [a, b] = file.blocks(role, layer, columns, of);
                (a.bytes(columns) + b.bytes(columns)) * (rows / 2)
            };
            let layer = |i: u32| {
                part("q", Some(i), 4096, 4096)
                    + part("kv", Some(i), 2048, 4096)
                    + part("o", Some(i), 4096, 4096)
                    + part("gate_up", Some(i), 28672, 4096)
                    + part("down", Some(i), 4096, 14336)
            };
            let ends = part("embed", None, 128_256, 4096) + part("lm_head", None, 128_256, 4096);
            ((0..32).map(layer).sum::<u64>() + ends) as f64 / 1e9
        };
        for (name, published) in [
            ("Q4_K_M", 4.92),
            ("Q3_K_M", 4.02),
            ("Q6_K_L", 6.85),
            ("Q5_K_L", 6.06),
            ("Q4_K_L", 5.31),
            ("Q3_K_XL", 4.78),
            ("Q2_K_L", 3.69),
            ("IQ3_M", 3.78),
            ("IQ3_XS", 3.52),
            ("IQ3_XXS", 3.27),
            ("IQ2_M", 2.95),
        ] {
            let got = gigabytes(name);
            assert!(
                (got / published - 1.0).abs() < 0.01,
                "{name}: {got:.3} of {published}"
            );
        }
        assert_eq!(gigabytes("UD-Q4_K_XL"), gigabytes("Q4_K_M"));
        assert_eq!(
            FileType::split_name("qwen3-8b-ud-q4_k_xl"),
            Some(("qwen3-8b", "ud-q4_k_xl"))
        );
        assert_eq!(
            FileType::split_name("qwen3-8b.q8_0"),
            Some(("qwen3-8b", "q8_0"))
        );
    }

    #[test]
    fn a_medium_file_has_finer_values_and_outputs() {
        let of = Mixture {
            layers: 32,
            sharing: 4,
            experts: 0,
            tied: false,
            mxfp4_experts: false,
        };
        let medium = FileType::of_name("q4_k_m").unwrap();
        assert_eq!(
            medium.blocks("lm_head", None, 4096, of),
            [Block::named("Q6_K"); 2]
        );
        assert_eq!(
            medium.blocks("q", Some(0), 4096, of),
            [Block::named("Q4_K"); 2]
        );
        assert_eq!(
            medium.blocks("kv", Some(0), 4096, of),
            [Block::named("Q4_K"), Block::named("Q6_K")]
        );
        assert_eq!(
            medium.blocks("down", Some(4), 14336, of),
            [Block::named("Q4_K"); 2]
        );
        assert_eq!(
            medium.blocks("down", Some(6), 14336, of),
            [Block::named("Q6_K"); 2]
        );
        // 896 values are no multiple of 256.
        assert_eq!(
            medium.blocks("q", Some(0), 896, of),
            [Block::named("Q5_0"); 2]
        );
        let gone = |name| FileType::of_name(name).is_none();
        assert!(gone("UD-Q9_K_XL") && gone("iq2_xxs_ud") && gone("XL"));
    }
}
