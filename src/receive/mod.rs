//! Receiving: waiting, streams and priority strategies.
