-- BEGIN DIALOG CONVERSATION: begins a conversation on the initiator's side; nothing is sent.
-- Takes: the two services, the broker instance (NULL, 'CURRENT DATABASE' or a GUID), the contract (NULL is DEFAULT), the
--     conversation or the group to be related to, the lifetime in seconds (NULL is the longest), the encryption option
--     (accepted, of no effect), and ids of the caller's choice (NULL: made here)
-- Gives: conversation_handle, conversation_group_id, conversation_id, notices
-- Errors: 8411, 8412, 8413, 8414, 8423, 8425, 8426, 9601, 9610, 60005
-- Locks: the group, waiting if it is not new
-- For: plain SQL
-- Called by: dialoq_user
CREATE OR REPLACE FUNCTION dialoq.begin_dialog_conversation(
    p_from_service text, p_to_service text, p_broker_instance text DEFAULT NULL, p_contract text DEFAULT NULL,
    p_related_conversation uuid DEFAULT NULL, p_related_group uuid DEFAULT NULL, p_lifetime_seconds bigint DEFAULT NULL,
    p_encryption boolean DEFAULT false, p_conversation_handle uuid DEFAULT NULL, p_conversation_id uuid DEFAULT NULL,
    p_conversation_group_id uuid DEFAULT NULL)
RETURNS TABLE (conversation_handle uuid, conversation_group_id uuid, conversation_id uuid, notices text)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off AS $$
#variable_conflict use_column
DECLARE
    v_now timestamptz;
    v_guid uuid;
    v_service_id integer;
    v_contract_id integer;
    v_contract text := coalesce(p_contract, 'DEFAULT');
    v_instance text;
    v_lifetime bigint := coalesce(p_lifetime_seconds, 2147483647);
    v_group uuid;
    v_other text;
    v_other_id integer;
    v_related record;
    v_state text;
    v_is_locked boolean := false;
    -- Whether the group has no endpoint yet, because its id was made here or is the caller's choice.
    v_is_new boolean;
    v_due timestamptz;
    v_handle uuid := coalesce(p_conversation_handle, dialoq.next_id());
    v_conversation uuid := coalesce(p_conversation_id, dialoq.next_id());
    v_notices text;
BEGIN
    IF NOT dialoq.is_read_committed() THEN
        PERFORM dialoq.check_isolation();
    END IF;
    -- Before any read: tick finds by the transaction's number whether its own reads are complete.
    PERFORM pg_current_xact_id();
    SELECT coalesce(b.manual_now, clock_timestamp()), b.service_broker_guid INTO v_now, v_guid FROM dialoq.broker AS b;
    SELECT s.service_id INTO v_service_id FROM dialoq.service AS s WHERE s.name = p_from_service;
    IF v_service_id IS NULL THEN
        PERFORM dialoq.fail(8423, dialoq.name_not_found('service', p_from_service));
    END IF;
    SELECT c.service_contract_id INTO v_contract_id
    FROM dialoq.service_contract AS c WHERE c.name = v_contract AND NOT c.is_dropped;
    IF v_contract_id IS NULL THEN
        PERFORM dialoq.fail(8425, dialoq.name_not_found('contract', v_contract));
    END IF;
    IF p_to_service IS NULL OR length(p_to_service) NOT BETWEEN 1 AND 256 THEN
        PERFORM dialoq.fail(8412, format('the name of the TO SERVICE has %s characters; it must have 1 to 256',
            coalesce(length(p_to_service), 0)));
    END IF;
    IF upper(p_broker_instance COLLATE "C") = 'CURRENT DATABASE' THEN
        v_instance := v_guid::text;
    ELSIF p_broker_instance IS NOT NULL THEN
        BEGIN
            v_instance := p_broker_instance::uuid::text;
        EXCEPTION WHEN invalid_text_representation THEN
            PERFORM dialoq.fail(8413,
                format('''%s'' is no broker instance; it must be a GUID, or ''CURRENT DATABASE''', p_broker_instance));
        END;
    END IF;
    IF v_lifetime NOT BETWEEN 1 AND 2147483647 THEN
        PERFORM dialoq.fail(8411, format('LIFETIME is %s seconds; it must be 1 to 2147483647', v_lifetime));
    END IF;
    IF p_related_group = '00000000-0000-0000-0000-000000000000' AND p_related_conversation IS NULL THEN
        PERFORM dialoq.fail(8414,
            'the conversation group id is all zeros; give an id of your own, or none for a new one');
    END IF;
    IF '00000000-0000-0000-0000-000000000000' IN (p_conversation_handle, p_conversation_id, CASE
        WHEN p_related_conversation IS NULL AND p_related_group IS NULL THEN p_conversation_group_id END)
    THEN
        PERFORM dialoq.fail(60005, 'an id of the conversation is all zeros; give an id of your own, or none for a new one');
    END IF;
    v_group := p_related_group;
    -- A refusal need not wait for the holder of the group. What is allowed is checked again under the group's lock.
    WHILE p_related_conversation IS NOT NULL OR p_related_group IS NOT NULL LOOP
        IF p_related_conversation IS NOT NULL THEN
            SELECT e.conversation_group_id, e.state INTO v_group, v_state
            FROM dialoq.conversation_endpoint AS e
            WHERE e.conversation_handle = p_related_conversation AND NOT e.is_system;
        END IF;
        IF v_state IN ('DO', 'CD') THEN
            PERFORM dialoq.fail(9601,
                format('conversation %s has ended; a new one cannot be related to it', p_related_conversation));
        END IF;
        SELECT e.service_id, s.name INTO v_other_id, v_other
        FROM dialoq.conversation_endpoint AS e LEFT JOIN dialoq.service AS s ON s.service_id = e.service_id
        WHERE e.conversation_group_id = v_group
        LIMIT 1;
        IF v_other_id <> v_service_id THEN
            PERFORM dialoq.fail(9610, format(
                'conversation group %s belongs to service ''%s''; a conversation FROM SERVICE ''%s'' cannot join it',
                v_group, coalesce(v_other, 'another service'), p_from_service));
        END IF;
        EXIT WHEN v_is_locked;
        IF p_related_conversation IS NOT NULL THEN
            SELECT * INTO v_related FROM dialoq.lock_handle(p_related_conversation, true);
            IF v_related.endpoint_id IS NULL THEN
                PERFORM dialoq.fail(8426, dialoq.conversation_not_found(p_related_conversation));
            END IF;
            v_notices := v_related.notices;
        ELSE
            PERFORM dialoq.lock_group(v_group);
        END IF;
        v_is_locked := true;
    END LOOP;
    IF v_group IS NULL THEN
        v_group := coalesce(p_conversation_group_id, dialoq.next_id());
        -- The group is new, so this does not wait; taking the lock makes later users wait for our commit. A group that
        -- another transaction holds is not new.
        v_is_new := dialoq.try_lock_group(v_group);
    END IF;
    INSERT INTO dialoq.conversation_endpoint (
        conversation_handle, conversation_id, conversation_group_id, service_id, service_contract_id, is_initiator,
        far_service, far_broker_instance, state, priority, lifetime, receive_sequence, is_peer_known,
        is_system, is_quarantined, begun_at, due_at, rollbacks)
    SELECT v_handle, v_conversation, v_group, v_service_id, v_contract_id, true,
        p_to_service, v_instance, 'SO', dialoq.level_for(v_contract_id, v_service_id, p_to_service), l.lifetime, 0, false,
        false, false, v_now, CASE WHEN l.lifetime < v_now + interval '7300 days' THEN l.lifetime END,
        -- The count of rollbacks is that of the group.
        CASE WHEN v_is_new IS NULL THEN coalesce((
            SELECT max(o.rollbacks) FROM dialoq.conversation_endpoint AS o WHERE o.conversation_group_id = v_group), 0) ELSE 0 END
    FROM (SELECT v_now + v_lifetime * interval '1 second' AS lifetime) AS l
    -- Ids of the caller's choice must be new: else the conversation would be the other side of an existing one.
    WHERE v_is_new IS NOT FALSE
        AND (v_is_new IS NULL OR NOT EXISTS (
            SELECT FROM dialoq.conversation_endpoint AS e WHERE e.conversation_group_id = v_group OFFSET 0))
        AND NOT EXISTS (SELECT FROM dialoq.conversation_endpoint AS e WHERE e.conversation_id = v_conversation OFFSET 0)
    ON CONFLICT DO NOTHING
    RETURNING due_at INTO v_due;
    IF NOT FOUND THEN
        PERFORM dialoq.fail(60005, format(
            'one of the ids %s (handle), %s (conversation) and %s (group) is in use already; give ids of your own, or none',
            v_handle, v_conversation, v_group));
    END IF;
    RETURN QUERY
    SELECT v_handle, v_group, v_conversation, dialoq.publish_notices(concat_ws(' ', v_notices, dialoq.due_notice(v_due)));
END $$;
