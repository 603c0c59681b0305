//! Tests of the chapter that holds two against each other.
