//! Which process printed a line: the `(EngineCore_DP0 pid=42)` before it, in every form.

use memchr::memchr2;

/// The process of a line, as far as its prefix names it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Origin {
    /// Data-parallel engine.
    pub dp: Option<u32>,
    /// Pipeline stage.
    pub pp: Option<u32>,
    /// Rank in the tensor-parallel group; the global rank where only that is printed.
    pub tp: Option<u32>,
    /// Process id of the innermost prefix.
    pub pid: Option<u32>,
    /// Kind of the innermost process.
    pub role: Role,
    /// Whether Ray forwarded the line: such lines can come twice.
    pub ray: bool,
}

/// Kind of a process.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Role {
    /// No prefix: a single process, or the driver among workers.
    #[default]
    Unmarked,
    /// The API server.
    Server,
    /// The main process of an offline run.
    Main,
    /// The engine core.
    Core,
    /// A worker.
    Worker,
}

impl Origin {
    /// The origin that the process prefixes of `text` name.
    pub fn of(text: &str) -> Origin {
        let mut origin = Origin::default();
        let mut from = 0;
        // Prefixes stack: `(EngineCore_DP0 pid=1) (RayWorkerWrapper pid=2, ip=..)`.
        while let Some(open) = memchr2(b'(', b'[', &text.as_bytes()[from..]).map(|i| from + i) {
            let inside = &text[open + 1..];
            let Some(end) = memchr2(b')', b']', inside.as_bytes()) else {
                break;
            };
            origin.add(&inside[..end]);
            from = open + 1 + end + 1;
            // Prefixes are at the front; brackets further on are text.
            if from > 300 {
                break;
            }
        }
        origin
    }

    fn add(&mut self, name: &str) {
        let (name, pid) = match name.split_once(" pid=") {
            Some((name, pid)) => (name, leading_number(pid)),
            None => (name, None),
        };
        let role = if let Some(rest) = name.strip_prefix("EngineCore") {
            if let Some(dp) = leading_number(rest.trim_start_matches("_DP").trim_start_matches('_'))
            {
                self.dp = Some(dp);
            }
            Role::Core
        } else if name.starts_with("APIServer") || name.starts_with("ApiServer") {
            Role::Server
        } else if name == "MainProcess" {
            Role::Main
        } else if pid.is_some() && (name.contains("Worker")) {
            self.ray |= name.starts_with("Ray");
            for part in name.split(['_', ' ']) {
                let rank = |label| part.strip_prefix(label).and_then(leading_number);
                self.dp = rank("DP").or(self.dp);
                self.pp = rank("PP").or(self.pp);
                self.tp = rank("TP").or_else(|| rank("rank=")).or(self.tp);
            }
            Role::Worker
        } else {
            return;
        };
        self.role = role;
        if pid.is_some() {
            self.pid = pid;
        }
    }

    /// The data-parallel engine, 0 where none is named.
    pub fn engine(&self) -> u32 {
        self.dp.unwrap_or(0)
    }

    /// Whether two lines with this origin are from one process for certain.
    pub fn identified(&self) -> bool {
        self.pid.is_some() && self.role != Role::Unmarked
    }
}

fn leading_number(text: &str) -> Option<u32> {
    let digits = text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    text[..digits].parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_form_of_prefix() {
        let of = |text| {
            let o = Origin::of(text);
            (o.role, o.dp, o.pp, o.tp, o.pid)
        };
        for (text, expected) in [
            (
                "INFO 05-25 00:00:33 [core.py:12] x",
                (Role::Unmarked, None, None, None, None),
            ),
            (
                "(EngineCore pid=26) INFO",
                (Role::Core, None, None, None, Some(26)),
            ),
            (
                "(EngineCore_DP3 pid=7) INFO",
                (Role::Core, Some(3), None, None, Some(7)),
            ),
            (
                "(EngineCore_0 pid=7) INFO",
                (Role::Core, Some(0), None, None, Some(7)),
            ),
            ("(EngineCore) INFO", (Role::Core, None, None, None, None)),
            (
                "(Worker_DP3_PP1_TP2_DCP0_EP12 pid=9) INFO",
                (Role::Worker, Some(3), Some(1), Some(2), Some(9)),
            ),
            (
                "[Worker_TP3 pid=540] DEBUG",
                (Role::Worker, None, None, Some(3), Some(540)),
            ),
            (
                "(VllmWorker rank=1 pid=219) INFO",
                (Role::Worker, None, None, Some(1), Some(219)),
            ),
            (
                "(VllmWorker TP1 pid=15) INFO",
                (Role::Worker, None, None, Some(1), Some(15)),
            ),
            (
                "(EngineCore_1 pid=1) (VllmWorker rank=0 pid=2) INFO",
                (Role::Worker, Some(1), None, Some(0), Some(2)),
            ),
            (
                "(RayWorkerWrapper pid=2697, ip=10.0.0.2) INFO",
                (Role::Worker, None, None, None, Some(2697)),
            ),
            (
                "web | (APIServer pid=1) INFO",
                (Role::Server, None, None, None, Some(1)),
            ),
        ] {
            assert_eq!(of(text), expected, "{text}");
        }
    }
}
