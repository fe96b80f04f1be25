-- Messages in queues, those that RECEIVE gives first at the top. A parameter that is NULL chooses nothing. No lock is taken.
-- Takes: @P1 queue, @P2 conversation handles with commas between, @P3 message_type_name, @P4 message_id, @P5 1 for kept ones too, of RETENTION, @P6 at most so many bytes of each body, @P7 at most so many, @P8 sent before (microseconds of UTC), @P9 service_name
-- Gives: queue_name, status, priority, queuing_order, conversation_group_id, conversation_handle, sequence, service_name, service_contract_name, message_type_name, message_id, enqueued_at (microseconds of UTC), body, body_bytes, is_quarantined, retry_at (microseconds of UTC)
SELECT TOP (CAST(@P7 AS bigint))
    m.queue_name, m.status, CAST(m.priority AS int) AS priority, m.queuing_order,
    CONVERT(nvarchar(36), m.conversation_group_id) AS conversation_group_id,
    CONVERT(nvarchar(36), m.conversation_handle) AS conversation_handle,
    m.message_sequence_number AS sequence, m.service_name, m.service_contract_name, m.message_type_name,
    CONVERT(nvarchar(36), m.message_id) AS message_id,
    DATEDIFF_BIG(microsecond, '1970-01-01', m.message_enqueue_time) AS enqueued_at,
    SUBSTRING(m.message_body, 1, CAST(@P6 AS int)) AS body, COALESCE(DATALENGTH(m.message_body), 0) AS body_bytes,
    e.is_quarantined,
    DATEDIFF_BIG(microsecond, '1970-01-01', e.retry_at) AS retry_at
FROM dialoq.queue_messages AS m
JOIN dialoq.effective_endpoint AS e ON e.conversation_handle = m.conversation_handle
WHERE (@P1 IS NULL OR TRANSLATE(m.queue_name COLLATE Latin1_General_100_BIN2,
        N'ABCDEFGHIJKLMNOPQRSTUVWXYZ', N'abcdefghijklmnopqrstuvwxyz')
        = TRANSLATE(CAST(@P1 AS nvarchar(4000)) COLLATE Latin1_General_100_BIN2,
        N'ABCDEFGHIJKLMNOPQRSTUVWXYZ', N'abcdefghijklmnopqrstuvwxyz')
        AND DATALENGTH(m.queue_name) = DATALENGTH(CAST(@P1 AS nvarchar(4000))))
    AND (@P2 IS NULL OR m.conversation_handle IN (
        SELECT CAST(v.value AS uniqueidentifier) FROM STRING_SPLIT(CAST(@P2 AS nvarchar(max)), N',') AS v))
    AND (@P3 IS NULL OR m.message_type_name = CAST(@P3 AS nvarchar(4000))
        AND DATALENGTH(m.message_type_name) = DATALENGTH(CAST(@P3 AS nvarchar(4000))))
    AND (@P4 IS NULL OR m.message_id = CAST(@P4 AS uniqueidentifier))
    AND (m.status = 1 OR CAST(@P5 AS bigint) = 1)
    AND (@P8 IS NULL OR DATEDIFF_BIG(microsecond, '1970-01-01', m.message_enqueue_time) < CAST(@P8 AS bigint))
    AND (@P9 IS NULL OR m.service_name = CAST(@P9 AS nvarchar(4000))
        AND DATALENGTH(m.service_name) = DATALENGTH(CAST(@P9 AS nvarchar(4000))))
-- Of the groups that of the highest level, then that of the oldest message; in a group one conversation after the other.
ORDER BY
    CASE WHEN m.status = 1 THEN 0 ELSE 1 END, e.is_quarantined,
    -MAX(m.priority) OVER (PARTITION BY m.conversation_group_id, CASE WHEN m.status = 1 THEN 0 ELSE 1 END, e.is_quarantined),
    MIN(m.queuing_order) OVER (PARTITION BY m.conversation_group_id, CASE WHEN m.status = 1 THEN 0 ELSE 1 END, e.is_quarantined),
    -m.priority, CAST(m.conversation_handle AS nvarchar(36)) COLLATE Latin1_General_100_BIN2, CASE m.message_type_id WHEN 3 THEN 0 WHEN 1 THEN 1 ELSE 2 END, m.queuing_order
