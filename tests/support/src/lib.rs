//! What tests of the library, of the command and of the suites share. It knows nothing of Dialoq, so that the library's own tests can use
//! it.

pub mod limit;
pub mod program;
pub mod seeds;
