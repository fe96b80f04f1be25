-- Dead letters, in the order in which their messages arrived. A parameter that is NULL chooses nothing. No lock is taken.
-- Takes: @P1 queue, @P2 service_name, @P3 message_type_name, @P4 conversation_handle, @P5 dead_letter_id, @P6 died before (microseconds of UTC), @P7 at most so many bytes of each body, @P8 at most so many, @P9 message_id
-- Gives: dead_letter_id, queue_name, service_name, far_service_name, service_contract_name, conversation_handle, conversation_id, conversation_group_id, is_conversation_open, sequence, priority, message_type_name, message_id, enqueued_at, died_at (microseconds of UTC), attempts, reason, body, body_bytes
SELECT TOP (CAST(@P8 AS bigint))
    d.dead_letter_id, d.queue_name, d.service_name, d.far_service_name, d.service_contract_name,
    CONVERT(nvarchar(36), d.conversation_handle) AS conversation_handle, CONVERT(nvarchar(36), d.conversation_id) AS conversation_id,
    CONVERT(nvarchar(36), d.conversation_group_id) AS conversation_group_id, d.is_conversation_open,
    d.message_sequence_number AS sequence, d.priority, d.message_type_name, CONVERT(nvarchar(36), d.message_id) AS message_id,
    DATEDIFF_BIG(microsecond, '1970-01-01', d.message_enqueue_time) AS enqueued_at,
    DATEDIFF_BIG(microsecond, '1970-01-01', d.died_at) AS died_at, d.attempts, d.reason,
    SUBSTRING(d.message_body, 1, CAST(@P7 AS int)) AS body, COALESCE(DATALENGTH(d.message_body), 0) AS body_bytes
FROM dialoq.dead_letters AS d
WHERE (@P1 IS NULL OR TRANSLATE(d.queue_name COLLATE Latin1_General_100_BIN2,
        N'ABCDEFGHIJKLMNOPQRSTUVWXYZ', N'abcdefghijklmnopqrstuvwxyz')
        = TRANSLATE(CAST(@P1 AS nvarchar(4000)) COLLATE Latin1_General_100_BIN2,
        N'ABCDEFGHIJKLMNOPQRSTUVWXYZ', N'abcdefghijklmnopqrstuvwxyz')
        AND DATALENGTH(d.queue_name) = DATALENGTH(CAST(@P1 AS nvarchar(4000))))
    AND (@P2 IS NULL OR d.service_name COLLATE Latin1_General_100_BIN2 = CAST(@P2 AS nvarchar(4000))
        AND DATALENGTH(d.service_name) = DATALENGTH(CAST(@P2 AS nvarchar(4000))))
    AND (@P3 IS NULL OR d.message_type_name = CAST(@P3 AS nvarchar(4000))
        AND DATALENGTH(d.message_type_name) = DATALENGTH(CAST(@P3 AS nvarchar(4000))))
    AND (@P4 IS NULL OR d.conversation_handle = CAST(@P4 AS uniqueidentifier))
    AND (@P5 IS NULL OR d.dead_letter_id = CAST(@P5 AS bigint))
    AND (@P6 IS NULL OR DATEDIFF_BIG(microsecond, '1970-01-01', d.died_at) < CAST(@P6 AS bigint))
    AND (@P9 IS NULL OR d.message_id = CAST(@P9 AS uniqueidentifier))
ORDER BY d.dead_letter_id
