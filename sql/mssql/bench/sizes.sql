-- How big the tables are that change with every message, indexes included.
-- Takes: nothing
-- Gives: bytes, dead_rows (ghosts are cleaned up by the server and not counted), of all of them together
SELECT SUM(s.used_page_count) * 8192 AS bytes, CAST(0 AS bigint) AS dead_rows
FROM sys.dm_db_partition_stats AS s
WHERE s.object_id IN (OBJECT_ID('dialoq.queue_message'), OBJECT_ID('dialoq.ready_group'), OBJECT_ID('dialoq.conversation_endpoint'));
