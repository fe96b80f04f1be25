-- The bodies of the Error messages that conversations hold, waiting or kept.
-- Takes: @P1 handles with commas between them
-- Gives: conversation_handle, body
SELECT CONVERT(nvarchar(36), conversation_handle) AS conversation_handle, message_body AS body
FROM dialoq.queue_messages
WHERE message_type_id = 1 AND conversation_handle IN (
    SELECT CAST(v.value AS uniqueidentifier) FROM STRING_SPLIT(CAST(@P1 AS nvarchar(max)), N',') AS v)
