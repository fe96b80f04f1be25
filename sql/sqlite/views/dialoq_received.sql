-- How far each endpoint has received, whichever of its three places says so. The other views read it.
CREATE VIEW dialoq_received AS
SELECT
    e.endpoint_id, e.conversation_id, e.is_initiator,
    max(e.receive_sequence, coalesce(r.receive_sequence, 0), coalesce(q.next_sequence, 0)) AS receive_sequence
FROM dialoq_conversation_endpoint AS e
LEFT JOIN dialoq_receive_sequence AS r ON r.endpoint_id = e.endpoint_id
LEFT JOIN (
    SELECT endpoint_id, max(sequence) + 1 AS next_sequence
    FROM dialoq_queue_message WHERE stored = 0 GROUP BY endpoint_id
) AS q ON q.endpoint_id = e.endpoint_id;
