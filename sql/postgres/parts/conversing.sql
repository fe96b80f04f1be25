-- Of the endpoint c, which was written as CONVERSING: it may send and get messages, for no message waits in its queue that
-- would change its state (rules/endpoint.sql: effective_state). The server reads once whether any system message is in a
-- queue, and reads those of the endpoint only if there is one, or if watch_dead_rows says so (v_asks_each).
AND (NOT v_asks_each AND NOT EXISTS (SELECT FROM dialoq.queue_message AS m WHERE m.message_type_id IN (1, 2, 3)) OR 'CO' = (
    SELECT dialoq.effective_state(c.state, f.message_type_id) FROM dialoq.first_system(c.endpoint_id) AS f))
