-- Sides of conversations, the oldest first. A parameter that is NULL chooses nothing; the broker's own are left out.
-- Takes: @P1 conversation_handle, conversation_id or conversation_group_id, @P2 queue, @P3 service_name, @P4 state, @P5 begun before (microseconds of UTC), @P6 service_contract_name, @P7 at most so many, @P8 1: none that has ended
-- Gives: conversation_handle, conversation_id, conversation_group_id, is_initiator, state, service_name, queue_name, far_service, service_contract_name, priority, lifetime (microseconds of UTC), dialog_timer (microseconds of UTC), begun_at (microseconds of UTC), is_quarantined, retry_at (microseconds of UTC)
SELECT TOP (CAST(@P7 AS bigint))
    CONVERT(nvarchar(36), e.conversation_handle) AS conversation_handle, CONVERT(nvarchar(36), e.conversation_id) AS conversation_id,
    CONVERT(nvarchar(36), e.conversation_group_id) AS conversation_group_id, e.is_initiator, e.state, s.name AS service_name,
    q.name AS queue_name, e.far_service, c.name AS service_contract_name, CAST(e.priority AS int) AS priority,
    DATEDIFF_BIG(microsecond, '1970-01-01', e.lifetime) AS lifetime,
    DATEDIFF_BIG(microsecond, '1970-01-01', e.dialog_timer) AS dialog_timer,
    DATEDIFF_BIG(microsecond, '1970-01-01', e.begun_at) AS begun_at, e.is_quarantined,
    DATEDIFF_BIG(microsecond, '1970-01-01', e.retry_at) AS retry_at
FROM dialoq.effective_endpoint AS e
JOIN dialoq.read_services AS s ON s.service_id = e.service_id
JOIN dialoq.read_service_queues AS q ON q.queue_id = s.queue_id
LEFT JOIN dialoq.read_service_contracts AS c ON c.service_contract_id = e.service_contract_id
WHERE e.is_system = 0
    AND (@P1 IS NULL OR CAST(@P1 AS uniqueidentifier) IN (e.conversation_handle, e.conversation_id, e.conversation_group_id))
    AND (@P2 IS NULL OR TRANSLATE(q.name COLLATE Latin1_General_100_BIN2,
        N'ABCDEFGHIJKLMNOPQRSTUVWXYZ', N'abcdefghijklmnopqrstuvwxyz')
        = TRANSLATE(CAST(@P2 AS nvarchar(4000)) COLLATE Latin1_General_100_BIN2,
        N'ABCDEFGHIJKLMNOPQRSTUVWXYZ', N'abcdefghijklmnopqrstuvwxyz')
        AND DATALENGTH(q.name) = DATALENGTH(CAST(@P2 AS nvarchar(4000))))
    AND (@P3 IS NULL OR s.name = CAST(@P3 AS nvarchar(4000))
        AND DATALENGTH(s.name) = DATALENGTH(CAST(@P3 AS nvarchar(4000))))
    AND (@P4 IS NULL OR e.state = CAST(@P4 AS nvarchar(4000)))
    AND (@P5 IS NULL OR DATEDIFF_BIG(microsecond, '1970-01-01', e.begun_at) < CAST(@P5 AS bigint))
    AND (@P6 IS NULL OR c.name = CAST(@P6 AS nvarchar(4000))
        AND DATALENGTH(c.name) = DATALENGTH(CAST(@P6 AS nvarchar(4000))))
    AND (CAST(@P8 AS bigint) = 0 OR e.state NOT IN ('DO', 'CD'))
ORDER BY e.begun_at, e.endpoint_id
