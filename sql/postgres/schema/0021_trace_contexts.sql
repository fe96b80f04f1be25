-- A row with a trace context near 1 GB cannot be received, and stands before the others of its queue. SEND takes 64 KiB at most now.
UPDATE dialoq.queue_message SET trace = NULL WHERE octet_length(trace) > 65536;
UPDATE dialoq.retained_message SET trace = NULL WHERE octet_length(trace) > 65536;
UPDATE dialoq.transmission SET trace = NULL WHERE octet_length(trace) > 65536;
UPDATE dialoq.dead_letter SET trace = NULL WHERE octet_length(trace) > 65536;
