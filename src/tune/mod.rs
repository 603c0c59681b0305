//! From a sweep to an answer: which settings serve most within limits, in a fraction of the starts. Pure: no I/O, no
//! clock. Same candidates, seed and figures: same search.

pub mod document;
pub mod search;
pub mod space;
pub mod surrogate;
pub mod trial;

pub use document::{
    BestSettings, NearestSettings, SettingWorth, TUNING_DOCUMENT, Tuning, UntriedSettings,
};
pub use search::{NextCandidate, PlannedLoad, TuningSearch, default_starts, starts_of_part};
pub use space::{DEFAULT_VALUE, SettingAxis, SettingSpace, describe_settings, settings_of_server};
pub use trial::{
    LoadFigures, MissedLimit, RepeatFigures, Trial, TrialState, TuningGoal, TuningLimits,
    objective_key, refused_flag,
};
