//! Service Broker's definition language as text: reading it and writing it.
