//! GGUF: the blocks that tensors are kept in, and which of them a file type such as `Q4_K_M` takes for which tensor.

/// A type of block. The number is ggml's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[allow(missing_docs, reason = "the names are ggml's own")]
pub enum Block {
    F32,
    F16,
    Q4_0,
    Q4_1,
    Q5_0,
    Q5_1,
    Q8_0,
    Q8_1,
    Q2K,
    Q3K,
    Q4K,
    Q5K,
    Q6K,
    Q8K,
    Iq2Xxs,
    Iq2Xs,
    Iq3Xxs,
    Iq1S,
    Iq4Nl,
    Iq3S,
    Iq2S,
    Iq4Xs,
    I8,
    I16,
    I32,
    I64,
    F64,
    Iq1M,
    Bf16,
    Tq1_0,
    Tq2_0,
    Mxfp4,
    Nvfp4,
}

/// Block, ggml's number, name, values of a block, bytes of a block. Source: ggml.h and ggml-common.h, 2025.
const BLOCKS: &[(Block, u32, &str, u64, u64)] = &[
    (Block::F32, 0, "F32", 1, 4),
    (Block::F16, 1, "F16", 1, 2),
    (Block::Q4_0, 2, "Q4_0", 32, 18),
    (Block::Q4_1, 3, "Q4_1", 32, 20),
    (Block::Q5_0, 6, "Q5_0", 32, 22),
    (Block::Q5_1, 7, "Q5_1", 32, 24),
    (Block::Q8_0, 8, "Q8_0", 32, 34),
    (Block::Q8_1, 9, "Q8_1", 32, 36),
    (Block::Q2K, 10, "Q2_K", 256, 84),
    (Block::Q3K, 11, "Q3_K", 256, 110),
    (Block::Q4K, 12, "Q4_K", 256, 144),
    (Block::Q5K, 13, "Q5_K", 256, 176),
    (Block::Q6K, 14, "Q6_K", 256, 210),
    (Block::Q8K, 15, "Q8_K", 256, 292),
    (Block::Iq2Xxs, 16, "IQ2_XXS", 256, 66),
    (Block::Iq2Xs, 17, "IQ2_XS", 256, 74),
    (Block::Iq3Xxs, 18, "IQ3_XXS", 256, 98),
    (Block::Iq1S, 19, "IQ1_S", 256, 50),
    (Block::Iq4Nl, 20, "IQ4_NL", 32, 18),
    (Block::Iq3S, 21, "IQ3_S", 256, 110),
    (Block::Iq2S, 22, "IQ2_S", 256, 82),
    (Block::Iq4Xs, 23, "IQ4_XS", 256, 136),
    (Block::I8, 24, "I8", 1, 1),
    (Block::I16, 25, "I16", 1, 2),
    (Block::I32, 26, "I32", 1, 4),
    (Block::I64, 27, "I64", 1, 8),
    (Block::F64, 28, "F64", 1, 8),
    (Block::Iq1M, 29, "IQ1_M", 256, 56),
    (Block::Bf16, 30, "BF16", 1, 2),
    (Block::Tq1_0, 34, "TQ1_0", 256, 54),
    (Block::Tq2_0, 35, "TQ2_0", 256, 66),
    (Block::Mxfp4, 39, "MXFP4", 32, 17),
    (Block::Nvfp4, 40, "NVFP4", 64, 36),
];

impl Block {
    fn row(self) -> &'static (Block, u32, &'static str, u64, u64) {
        BLOCKS
            .iter()
            .find(|row| row.0 == self)
            .unwrap_or(&BLOCKS[0])
    }

    /// By ggml's number, as files have it.
    pub fn of_number(number: u32) -> Option<Block> {
        BLOCKS.iter().find(|row| row.1 == number).map(|row| row.0)
    }

    /// By name, whatever the case.
    pub fn of_name(name: &str) -> Option<Block> {
        let same = |row: &&(Block, u32, &str, u64, u64)| row.2.eq_ignore_ascii_case(name);
        BLOCKS.iter().find(same).map(|row| row.0)
    }

    /// ggml's name.
    pub fn name(self) -> &'static str {
        self.row().2
    }

    /// Values of a block.
    pub fn values(self) -> u64 {
        self.row().3
    }

    /// Bytes of a row of so many values. Blocks do not go across rows.
    pub fn bytes(self, values: u64) -> u64 {
        let (.., per, bytes) = *self.row();
        values.div_ceil(per).saturating_mul(bytes)
    }

    /// Bits of a value.
    pub fn bits(self) -> f64 {
        let (.., per, bytes) = *self.row();
        bytes as f64 * 8.0 / per as f64
    }

    /// What llama.cpp takes instead where a row is no multiple of the block.
    fn fitting(self, columns: u64) -> Block {
        if columns % self.values() == 0 {
            return self;
        }
        let smaller = match self {
            Block::Q2K | Block::Q3K | Block::Iq4Xs => Block::Iq4Nl,
            Block::Q4K => Block::Q5_0,
            Block::Q5K => Block::Q5_1,
            Block::Q6K => Block::Q8_0,
            _ => Block::F16,
        };
        if columns % smaller.values() == 0 {
            smaller
        } else {
            Block::F16
        }
    }
}

/// A file type: a block for most tensors, finer ones for those that matter more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct FileType {
    /// The block of most tensors.
    base: Block,
    mix: Mix,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Mix {
    /// One block for all.
    Uniform,
    /// Only the output layer is finer.
    Output,
    Small,
    Medium,
    Large,
    Two,
}

/// What a model says that llama.cpp's mixtures ask.
#[derive(Debug, Clone, Copy)]
pub struct Mixture {
    /// Layers.
    pub layers: u64,
    /// Query heads that share a key head.
    pub sharing: u64,
    /// Experts of a layer, or 0.
    pub experts: u64,
    /// The output layer is the embedding.
    pub tied: bool,
}

impl FileType {
    /// `Q4_K_M`, `q8_0`, `F16`, …; `None`: a mixture whose rules are not known here.
    pub fn of_name(name: &str) -> Option<FileType> {
        let name = name.to_ascii_uppercase();
        let name = name.trim_start_matches("GGUF_").trim_start_matches("GGUF-");
        let made = |base, mix| Some(FileType { base, mix });
        match name {
            "F32" => made(Block::F32, Mix::Uniform),
            "F16" => made(Block::F16, Mix::Uniform),
            "BF16" => made(Block::Bf16, Mix::Uniform),
            "Q8_0" => made(Block::Q8_0, Mix::Uniform),
            "Q6_K" => made(Block::Q6K, Mix::Uniform),
            "Q4_0" => made(Block::Q4_0, Mix::Output),
            "Q4_1" => made(Block::Q4_1, Mix::Output),
            "Q5_0" => made(Block::Q5_0, Mix::Output),
            "Q5_1" => made(Block::Q5_1, Mix::Output),
            "Q2_K" => made(Block::Q2K, Mix::Two),
            "Q3_K_S" => made(Block::Q3K, Mix::Output),
            "Q3_K_M" | "Q3_K" => made(Block::Q3K, Mix::Medium),
            "Q3_K_L" => made(Block::Q3K, Mix::Large),
            "Q4_K_S" => made(Block::Q4K, Mix::Small),
            "Q4_K_M" | "Q4_K" => made(Block::Q4K, Mix::Medium),
            "Q5_K_S" => made(Block::Q5K, Mix::Output),
            "Q5_K_M" | "Q5_K" => made(Block::Q5K, Mix::Medium),
            "IQ4_NL" => made(Block::Iq4Nl, Mix::Small),
            "IQ4_XS" => made(Block::Iq4Xs, Mix::Small),
            _ => None,
        }
    }

    /// The block of most tensors.
    pub fn base(self) -> Block {
        self.base
    }

    /// The blocks of a tensor and the share of its rows that each has: keys and values may differ.
    ///
    /// Source: llama.cpp 2025, src/llama-quant.cpp, `llama_tensor_get_type`.
    pub fn blocks(self, role: &str, layer: Option<u32>, columns: u64, of: Mixture) -> [Block; 2] {
        let both = |block: Block| [block.fitting(columns); 2];
        let i = u64::from(layer.unwrap_or(0));
        let more =
            i < of.layers / 8 || i >= 7 * of.layers / 8 || i.saturating_sub(of.layers / 8) % 3 == 2;
        let whole = matches!(self.mix, Mix::Uniform);
        match role {
            "lm_head" if !whole => both(Block::Q6K),
            "embed" if !whole && of.tied => both(Block::Q6K),
            "embed" if self.mix == Mix::Two => both(Block::Q2K),
            "kv" | "qkv" if !whole => {
                if of.experts == 8 {
                    return both(Block::Q8_0);
                }
                let value = match (self.base, self.mix) {
                    (Block::Q2K, _) if of.sharing >= 4 => Block::Q4K,
                    (Block::Q2K, _) => Block::Q3K,
                    (Block::Q3K, Mix::Medium) if i < 2 => Block::Q5K,
                    (Block::Q3K, Mix::Medium) => Block::Q4K,
                    (Block::Q3K, Mix::Large) => Block::Q5K,
                    (Block::Q4K, Mix::Small) if i < 4 => Block::Q5K,
                    (Block::Iq4Nl | Block::Iq4Xs, _) if of.sharing >= 4 => Block::Q5K,
                    (Block::Q4K | Block::Q5K, Mix::Medium) if more => Block::Q6K,
                    (base, _) => base,
                };
                [self.base.fitting(columns), value.fitting(columns)]
            }
            "o" => match (self.base, self.mix) {
                (_, Mix::Uniform) => both(self.base),
                (Block::Q2K, _) => both(Block::Q3K),
                (Block::Q3K, Mix::Medium) => both(Block::Q4K),
                (Block::Q3K, Mix::Large) => both(Block::Q5K),
                (base, _) => both(base),
            },
            "down" | "exp_w2" | "sh_down" => match (self.base, self.mix) {
                (Block::Q2K, _) => both(Block::Q3K),
                (Block::Q3K, Mix::Medium) if i < of.layers / 16 => both(Block::Q5K),
                (Block::Q3K, Mix::Medium) if more => both(Block::Q4K),
                (Block::Q3K, Mix::Large) => both(Block::Q5K),
                (Block::Q4K, Mix::Small) if i < of.layers / 8 => both(Block::Q5K),
                (Block::Iq4Nl | Block::Iq4Xs, _) if i < of.layers / 8 => both(Block::Q5K),
                (Block::Q4K | Block::Q5K, Mix::Medium) if more => both(Block::Q6K),
                (base, _) => both(base),
            },
            _ => both(self.base),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_names_lead_to_the_same_block() {
        for &(block, number, name, ..) in BLOCKS {
            assert_eq!(Block::of_number(number), Some(block));
            assert_eq!(Block::of_name(&name.to_lowercase()), Some(block));
        }
        assert_eq!(Block::of_number(4), None, "Q4_2 is gone from the format");
        assert_eq!(Block::Q4K.bytes(4096), 16 * 144);
    }

    #[test]
    fn a_medium_file_has_finer_values_and_outputs() {
        let of = Mixture {
            layers: 32,
            sharing: 4,
            experts: 0,
            tied: false,
        };
        let medium = FileType::of_name("q4_k_m").unwrap();
        assert_eq!(medium.blocks("lm_head", None, 4096, of), [Block::Q6K; 2]);
        assert_eq!(medium.blocks("q", Some(0), 4096, of), [Block::Q4K; 2]);
        assert_eq!(
            medium.blocks("kv", Some(0), 4096, of),
            [Block::Q4K, Block::Q6K]
        );
        assert_eq!(medium.blocks("down", Some(4), 14336, of), [Block::Q4K; 2]);
        assert_eq!(medium.blocks("down", Some(6), 14336, of), [Block::Q6K; 2]);
        // 896 values are no multiple of 256.
        assert_eq!(medium.blocks("q", Some(0), 896, of), [Block::Q5_0; 2]);
        assert_eq!(FileType::of_name("UD-Q4_K_XL"), None);
    }
}
