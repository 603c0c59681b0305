//! In what bytes a matrix is kept: plain, 8 and 4 bits with their scales, GGUF's blocks.

pub mod config;
pub mod contradiction;
pub mod gguf;
pub mod modules;
pub mod named;
pub mod scheme;

pub use gguf::{Block, FileType};
pub use scheme::{Padding, Scheme};

use crate::estimate::arithmetic::{product, sum};
use serde::Deserialize;

/// How the values of a matrix are kept. Groups are of inputs; 0 is a group as long as the row.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Hash, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Format {
    /// As the model's own type has them.
    #[default]
    Plain,
    /// 8 bits, one scale for the matrix and one for its inputs.
    Fp8Tensor,
    /// 8 bits, a 32-bit scale for each output.
    Fp8Channel,
    /// 8 bits, a 32-bit scale for each block of outputs and inputs.
    Fp8Block {
        /// Outputs of a block.
        rows: u64,
        /// Inputs of a block.
        columns: u64,
    },
    /// 8-bit integers, a 32-bit scale for each output.
    Int8Channel,
    /// 4-bit integers with 16-bit scales and 4-bit zero points.
    Awq {
        /// Inputs that share a scale.
        group: u64,
    },
    /// Integers of a few bits with 16-bit scales.
    Gptq {
        /// Bits of a value.
        bits: u64,
        /// Inputs that share a scale.
        group: u64,
        /// A 32-bit index for each input: the order in which they were quantised.
        #[serde(default)]
        act_order: bool,
        /// Zero points are kept: the quantisation is not symmetric.
        #[serde(default)]
        zeros: bool,
    },
    /// bitsandbytes' 4 bits: blocks of 64 values.
    Nf4 {
        /// The scales are quantised themselves.
        double: bool,
    },
    /// bitsandbytes' 8 bits.
    BnbInt8,
    /// 4 bits, an 8-bit exponent for each 32.
    Mxfp4,
    /// The same with a 32-bit scale for each 32, as SGLang loads it beside 8 bits (0.5.23, layers/quantization/fp8.py).
    WideMxfp4,
    /// 8 bits, an 8-bit exponent for each 32.
    Mxfp8,
    /// 4 bits, an 8-bit scale for each 16, two 32-bit scales for the matrix.
    Nvfp4,
    /// Blocks of a GGUF file.
    #[serde(skip)]
    Gguf(Block),
}

/// Bytes of a matrix, by what an engine allocates apart.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Bytes {
    /// Of the values.
    pub values: u64,
    /// Of scales, zero points and indices.
    pub scales: u64,
}

impl Bytes {
    /// Both.
    pub fn total(self) -> u64 {
        self.values.saturating_add(self.scales)
    }
}

/// Values of a group that shares one of bitsandbytes' scales.
const BNB_BLOCK: u64 = 64;
/// Scales of bitsandbytes that share a scale themselves.
const BNB_NESTED: u64 = 256;

impl Format {
    /// Bytes of `count` matrices of `rows` outputs and `columns` inputs; a plain value takes `value_bytes`.
    ///
    /// Sources: vLLM 0.11, model_executor/layers/quantization/*.py (`create_weights`); bitsandbytes 0.45,
    /// functional.py; the OCP microscaling formats; ggml-common.h.
    pub fn bytes(self, rows: u64, columns: u64, count: u64, value_bytes: u64) -> Bytes {
        let each = rows.saturating_mul(columns);
        let n = each.saturating_mul(count);
        let bits = |b: u64| n.saturating_mul(b).div_ceil(8);
        let outputs = rows.saturating_mul(count);
        // Values of scales where each output has one for every group of inputs.
        let grouped = |group: u64| {
            let groups = if group == 0 {
                1
            } else {
                columns.div_ceil(group)
            };
            outputs.saturating_mul(groups)
        };
        let (values, scales) = match self {
            Format::Plain => (n.saturating_mul(value_bytes), 0),
            Format::Fp8Tensor => (n, count.saturating_mul(8)),
            Format::Fp8Channel | Format::Int8Channel => (n, outputs.saturating_mul(4)),
            Format::Fp8Block {
                rows: high,
                columns: wide,
            } => {
                let blocks = product([rows.div_ceil(high.max(1)), columns.div_ceil(wide.max(1))]);
                (n, product([blocks, count, 4]))
            }
            Format::Awq { group } => {
                let s = grouped(group);
                (bits(4), s.saturating_mul(2).saturating_add(s.div_ceil(2)))
            }
            Format::Gptq {
                bits: b,
                group,
                act_order,
                zeros,
            } => {
                let s = grouped(group);
                let zero = if zeros {
                    s.saturating_mul(b).div_ceil(8)
                } else {
                    0
                };
                let order = if act_order {
                    product([columns, count, 4])
                } else {
                    0
                };
                let scales = sum([product([s, 2]), zero, order]);
                (bits(b), scales)
            }
            Format::Nf4 { double: true } => {
                let s = n.div_ceil(BNB_BLOCK);
                (
                    bits(4),
                    s.saturating_add(s.div_ceil(BNB_NESTED).saturating_mul(4)),
                )
            }
            Format::Nf4 { double: false } => (bits(4), n.div_ceil(BNB_BLOCK).saturating_mul(4)),
            Format::BnbInt8 => (n, outputs.saturating_mul(4)),
            Format::Mxfp4 => (bits(4), grouped(32)),
            Format::WideMxfp4 => (bits(4), grouped(32).saturating_mul(4)),
            Format::Mxfp8 => (n, grouped(32)),
            Format::Nvfp4 => (bits(4), grouped(16).saturating_add(count.saturating_mul(8))),
            Format::Gguf(block) => (block.bytes(columns).saturating_mul(outputs), 0),
        };
        Bytes { values, scales }
    }

    /// Floats of 8 bits with scales.
    pub fn is_fp8(self) -> bool {
        matches!(
            self,
            Format::Fp8Tensor | Format::Fp8Channel | Format::Fp8Block { .. }
        )
    }

    /// Four bits or fewer: config.json leaves more open there than the files do.
    pub fn is_small(self) -> bool {
        // Of a square of 256: whole blocks of any format.
        self.bytes(256, 256, 1, 2).values < 256 * 256
    }

    /// As a person calls it.
    pub fn label(self) -> String {
        match self {
            Format::Plain => "plain".to_owned(),
            Format::Fp8Tensor => "fp8, one scale each".to_owned(),
            Format::Fp8Channel => "fp8, a scale per output".to_owned(),
            Format::Fp8Block { rows, columns } => format!("fp8, blocks of {rows} x {columns}"),
            Format::Int8Channel => "int8, a scale per output".to_owned(),
            Format::Awq { group } => format!("awq, groups of {group}"),
            Format::Gptq { bits, group, .. } => format!("{bits} bits, groups of {group}"),
            Format::Nf4 { double: true } => "nf4, double quantisation".to_owned(),
            Format::Nf4 { double: false } => "nf4".to_owned(),
            Format::BnbInt8 => "int8 of bitsandbytes".to_owned(),
            Format::Mxfp4 => "mxfp4".to_owned(),
            Format::WideMxfp4 => "mxfp4, 32-bit scales".to_owned(),
            Format::Mxfp8 => "mxfp8".to_owned(),
            Format::Nvfp4 => "nvfp4".to_owned(),
            Format::Gguf(block) => block.name().to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bytes per value of a matrix as large models have them.
    fn per_value(format: Format) -> f64 {
        format.bytes(4096, 14336, 1, 2).total() as f64 / (4096.0 * 14336.0)
    }

    #[test]
    fn a_value_takes_what_the_formats_papers_say() {
        let near = |format, expected: f64| {
            let got = per_value(format);
            assert!((got - expected).abs() < 1e-4, "{format:?}: {got}");
        };
        near(Format::Plain, 2.0);
        near(Format::Awq { group: 128 }, 0.5 + 2.5 / 128.0);
        near(Format::Nf4 { double: true }, 0.515_869);
        near(Format::Nf4 { double: false }, 0.5625);
        near(Format::Mxfp4, 0.53125);
        near(Format::Nvfp4, 0.5625);
        near(
            Format::Fp8Block {
                rows: 128,
                columns: 128,
            },
            1.0 + 4.0 / 16384.0,
        );
        near(Format::Gguf(Block::of_name("Q4_K").unwrap()), 144.0 / 256.0);
        let eight = Format::Gptq {
            bits: 8,
            group: 128,
            act_order: false,
            zeros: true,
        };
        near(eight, 1.0 + 3.0 / 128.0);
    }

    #[test]
    fn a_block_that_is_not_full_has_its_scale_too() {
        let blocks = Format::Fp8Block {
            rows: 128,
            columns: 128,
        };
        assert_eq!(blocks.bytes(129, 1, 1, 2).scales, 8);
        assert_eq!(Format::Awq { group: 128 }.bytes(2, 129, 1, 2).scales, 8 + 2);
        // A group of the whole row.
        assert_eq!(Format::Awq { group: 0 }.bytes(2, 999, 1, 2).scales, 5);
    }

    #[test]
    fn no_size_overflows() {
        for format in [
            Format::Plain,
            Format::Mxfp4,
            Format::Nf4 { double: true },
            Format::Gguf(Block::of_name("Q6_K").unwrap()),
            Format::Fp8Block {
                rows: 0,
                columns: 0,
            },
        ] {
            let _ = format.bytes(u64::MAX, u64::MAX, u64::MAX, u64::MAX).total();
        }
    }
}
