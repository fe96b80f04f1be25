-- The endpoints e of the group, how many it has, and whether the short way may receive from each: nothing is due or was rolled
-- back, and it is not quarantined, moved or of another level.
FROM (
    SELECT e.endpoint_id, e.conversation_handle AS handle, e.service_id, e.service_contract_id,
        count(*) OVER () AS endpoints,
        e.rollbacks = 0 AND (e.due_at IS NULL OR e.due_at > v_now) AND NOT e.is_quarantined
            AND e.moved_recheck_id IS NULL AND e.state IN ('SO', 'CO') AND 10 - e.priority = v_top AS is_plain
    FROM dialoq.conversation_endpoint AS e WHERE e.conversation_group_id = v_group
    OFFSET 0
) AS e
