//! Progress events of a run: the only channel from the work to the console.

/// Where a run is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    /// Reading the container, the engine and its endpoints.
    Inspect,
    /// Pulling an image.
    Pull,
    /// Creating and starting the container.
    Start,
    /// Waiting until the engine serves.
    WaitHealthy,
    /// Sampling before the load.
    Baseline,
    /// The bench starts up and warms up.
    Warmup {
        /// From 1.
        repeat: u32,
        /// In all.
        of: u32,
    },
    /// The measured part of the bench.
    Bench {
        /// From 1.
        repeat: u32,
        /// In all.
        of: u32,
    },
    /// Watching without a load of our own.
    Observe,
    /// Stopping and removing what was started.
    Cleanup,
    /// Deriving the profile.
    Derive,
}

impl Stage {
    /// As people read it.
    pub fn label(self) -> String {
        match self {
            Stage::Inspect => "inspect".into(),
            Stage::Pull => "pull".into(),
            Stage::Start => "start".into(),
            Stage::WaitHealthy => "wait until healthy".into(),
            Stage::Baseline => "baseline".into(),
            Stage::Warmup { repeat, of } => format!("warm-up {repeat}/{of}"),
            Stage::Bench { repeat, of } => format!("bench {repeat}/{of}"),
            Stage::Observe => "observe".into(),
            Stage::Cleanup => "clean up".into(),
            Stage::Derive => "derive".into(),
        }
    }
}

/// One event.
#[derive(Debug, Clone, PartialEq)]
pub enum Progress {
    /// A stage began.
    Stage(Stage),
    /// The running stage did not reach its end.
    StageFailed,
    /// So much of the stage is done.
    Step {
        /// Done so far.
        done: u64,
        /// In all.
        of: u64,
    },
    /// Detail for the running stage: most memory in use since the last report, bytes.
    Memory(u64),
    /// Something worth a line of its own.
    Note(String),
    /// Something that may spoil the figures.
    Warning(String),
}

/// Takes events; called from any thread, must not block.
pub type Sink = std::sync::Arc<dyn Fn(Progress) + Send + Sync>;
