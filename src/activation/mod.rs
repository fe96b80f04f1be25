//! Activation: readers launched while there is work, never more than MAX_QUEUE_READERS.
