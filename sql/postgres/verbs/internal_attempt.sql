-- Transactions that received and did not commit.
-- Takes: see each function
-- Gives: words for others

-- Counts one rollback for each queue that a transaction received from, and forgets the transaction. Whoever counts it first
-- has it; nobody waits.
CREATE OR REPLACE FUNCTION dialoq.count_attempt(p_attempt_id uuid) RETURNS text
LANGUAGE plpgsql AS $$
DECLARE
    v_row record;
    v_said text;
BEGIN
    FOR v_row IN
        WITH gone AS (
            DELETE FROM dialoq.receive_attempt AS a
            WHERE (a.attempt_id, a.conversation_group_id) IN (
                SELECT o.attempt_id, o.conversation_group_id
                FROM dialoq.receive_attempt AS o WHERE o.attempt_id = p_attempt_id
                FOR UPDATE SKIP LOCKED)
            RETURNING a.queue_id, a.conversation_group_id
        )
        SELECT g.queue_id, array_agg(g.conversation_group_id) AS groups FROM gone AS g GROUP BY g.queue_id ORDER BY g.queue_id
    LOOP
        v_said := concat_ws(' ', v_said, dialoq.count_against(v_row.queue_id, v_row.groups));
    END LOOP;
    RETURN v_said;
END $$;
