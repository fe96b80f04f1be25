//! Priority strategies as pure values.
