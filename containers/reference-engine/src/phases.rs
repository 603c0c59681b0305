//! The phase lines: the engine's log says when something happened and never how many bytes it took, because the
//! ruler is to be measured, not believed. Faults strike on entering a phase.

use crate::faults::Fault;
use std::io::Write;
use std::sync::{Mutex, PoisonError};

macro_rules! phases {
    ($($variant:ident = $name:literal),* $(,)?) => {
        #[derive(Clone, Copy, PartialEq, Debug)]
        pub enum Phase { $($variant),* }

        impl Phase {
            const ALL: &[(Phase, &str)] = &[$((Phase::$variant, $name)),*];
        }
    };
}

phases! {
    Start = "start",
    LoadingWeights = "loading_weights",
    WeightsLoaded = "weights_loaded",
    KvCacheAllocated = "kv_cache_allocated",
    Ready = "ready",
    WarmupStart = "warmup_start",
    WarmupEnd = "warmup_end",
    BenchStart = "bench_start",
    BenchIteration = "bench_iteration",
    BenchEnd = "bench_end",
    Stopping = "stopping",
}

impl Phase {
    pub fn name(self) -> &'static str {
        Phase::ALL[self as usize].1
    }

    pub fn parse(text: &str) -> Option<Phase> {
        Phase::ALL.iter().find(|(_, name)| *name == text).map(|(phase, _)| *phase)
    }
}

pub struct Phases {
    faults: Vec<Fault>,
    entered: Mutex<[u64; Phase::ALL.len()]>,
}

impl Phases {
    pub fn new(faults: Vec<Fault>) -> Phases {
        Phases { faults, entered: Mutex::default() }
    }

    pub fn banner(&self, model: &str) {
        let pid = std::process::id();
        say(&format!("reference-engine {} (simulated engine) model={model} pid={pid}", crate::VERSION));
    }

    /// `details` are ` k=v` words, or empty.
    pub fn enter(&self, phase: Phase, details: &str) {
        say(&format!("reference-engine phase={}{details}", phase.name()));
        let times = {
            let mut entered = self.entered.lock().unwrap_or_else(PoisonError::into_inner);
            entered[phase as usize] += 1;
            entered[phase as usize]
        };
        for fault in self.faults.iter().filter(|fault| fault.is_due(phase, times)) {
            fault.strike(self);
        }
    }

    pub fn iteration(&self, n: u64, of: u64) {
        self.enter(Phase::BenchIteration, &format!(" n={n} of={of}"));
    }

    pub fn has(&self, fault: impl Fn(&Fault) -> bool) -> bool {
        self.faults.iter().any(fault)
    }
}

/// One flushed line on stdout. A reader that went away is not an engine's problem.
pub fn say(line: &str) {
    let mut out = std::io::stdout().lock();
    let _ = writeln!(out, "{line}").and_then(|()| out.flush());
}
