-- The group of the peer is ready for the message that plain sends: its row stays if it names an older message.
INSERT INTO dialoq.ready_group (queue_id, rank_from_top, oldest, conversation_group_id, generation)
SELECT p.queue_id, p.rank_from_top, least(p.queuing_order, (
        SELECT min(r.oldest) FROM dialoq.ready_group AS r
        WHERE r.conversation_group_id <= p.group_id AND (r.conversation_group_id, r.generation) >= (p.group_id, v_floor))),
    p.group_id, v_latest
FROM plain AS p
LEFT JOIN LATERAL (
    SELECT true AS is_kept FROM dialoq.ready_group AS r
    WHERE r.conversation_group_id <= p.group_id
        AND (r.conversation_group_id, r.generation) >= (p.group_id, v_floor) AND r.queue_id + 0 = p.queue_id
        AND r.rank_from_top + 0 = p.rank_from_top AND r.oldest + 0 <= p.queuing_order
    LIMIT 1
    FOR KEY SHARE SKIP LOCKED
) AS k ON true
WHERE k.is_kept IS NULL
