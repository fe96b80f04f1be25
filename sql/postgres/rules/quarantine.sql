-- Quarantine: a group that poison handling has set aside gives no messages until RELEASE QUARANTINE.
-- Takes, Gives, Errors, Locks: see each function

-- Puts a group into quarantine, or back into its queue. Both reset its count of rollbacks: a conversation that joins a quarantined
-- group begins at 0. The caller holds the group's lock.
CREATE OR REPLACE FUNCTION dialoq.set_quarantined(p_group uuid, p_is_quarantined boolean) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    UPDATE dialoq.conversation_endpoint AS e
    SET is_quarantined = p_is_quarantined, rollbacks = 0
    WHERE e.conversation_group_id = p_group;
    PERFORM dialoq.rebuild_ready_rows(p_group);
END $$;
