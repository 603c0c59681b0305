//! Tests of the chapters of sweeps.
