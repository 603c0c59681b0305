//! Tests of the chapter of trends.
