-- SEND takes a trace context of 64 KiB at most now: every process that receives the message reads it.
UPDATE dialoq.queue_message SET trace = NULL WHERE DATALENGTH(trace) > 65536 * DATALENGTH(N'a');
UPDATE dialoq.retained_message SET trace = NULL WHERE DATALENGTH(trace) > 65536 * DATALENGTH(N'a');
UPDATE dialoq.transmission SET trace = NULL WHERE DATALENGTH(trace) > 65536 * DATALENGTH(N'a');
GO
