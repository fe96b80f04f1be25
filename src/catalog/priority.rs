//! Which level an endpoint gets: the eight ranks of broker priorities.
