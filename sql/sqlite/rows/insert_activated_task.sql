-- Writes a running reader.
-- Takes: ?1 spid, ?2 monitor_id, ?3 queue_id, ?4 procedure_name, ?5 process_id, ?6 started_at
-- Gives: nothing
INSERT OR REPLACE INTO dialoq_activated_task (
    spid, monitor_id, queue_id, procedure_name, process_id, started_at
) VALUES (?1, ?2, ?3, ?4, ?5, ?6)
