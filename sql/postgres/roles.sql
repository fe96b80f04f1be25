-- The roles and their rights: dialoq_user may execute the verbs and read the views, dialoq_admin may also change
-- definitions; nobody else may do anything, and nobody touches a table. Roles belong to the whole server: another
-- database's installer may make them at the same moment.
DO $$
DECLARE
    v_role text;
BEGIN
    FOREACH v_role IN ARRAY ARRAY['dialoq_user', 'dialoq_admin'] LOOP
        IF NOT EXISTS (SELECT FROM pg_catalog.pg_roles AS r WHERE r.rolname = v_role) THEN
            BEGIN
                EXECUTE format('CREATE ROLE %I NOLOGIN', v_role);
            EXCEPTION WHEN duplicate_object OR unique_violation THEN
                NULL;
            END;
        END IF;
    END LOOP;
END
$$;

-- Says that the owner of the schema is to be trusted (install/standing.sql), where its login may say so.
DO $$
BEGIN
    IF NOT (SELECT r.rolsuper FROM pg_roles AS r WHERE r.rolname = current_user)
        AND NOT pg_has_role('dialoq_admin', 'MEMBER')
    THEN
        EXECUTE format('GRANT dialoq_admin TO %I', current_user);
    END IF;
EXCEPTION WHEN insufficient_privilege THEN
    NULL;
END
$$;

REVOKE ALL ON SCHEMA dialoq FROM PUBLIC;
REVOKE ALL ON ALL TABLES IN SCHEMA dialoq FROM PUBLIC, dialoq_user, dialoq_admin;
REVOKE ALL ON ALL SEQUENCES IN SCHEMA dialoq FROM PUBLIC, dialoq_user, dialoq_admin;
REVOKE ALL ON ALL ROUTINES IN SCHEMA dialoq FROM PUBLIC, dialoq_user, dialoq_admin;
GRANT USAGE ON SCHEMA dialoq TO dialoq_user, dialoq_admin;
GRANT SELECT ON dialoq.installed TO dialoq_user, dialoq_admin;

DO $$
DECLARE
    v_verbs text[] := ARRAY[
        'begin_dialog_conversation', 'send', 'send_many', 'send_batch', 'receive', 'receive_batch',
        'get_conversation_group', 'move_conversation', 'end_conversation', 'begin_conversation_timer',
        'get_transmission_status', 'reprioritise', 'release_quarantine', 'post_queue_activation',
        'tick', 'poll', 'begin_attempt', 'commit_attempt', 'count_rollback', 'claim_unit', 'unit_happened', 'notify_processes',
        'unlock_session', 'hold_presence', 'take_reader_slot', 'free_reader_slot', 'put_queue_monitor',
        'delete_queue_monitor', 'put_activated_task', 'delete_activated_task', 'delete_process'];
    v_definitions text[] := ARRAY[
        'define_begin', 'define_end', 'configure', 'put_message_type', 'put_service_contract',
        'put_service_queue', 'delete_service_queue', 'put_service', 'delete_service', 'put_conversation_priority',
        'delete_conversation_priority', 'put_xml_schema_collection', 'delete_xml_schema_collection',
        'put_event_notification', 'delete_event_notification', 'put_settings', 'on_contract_dropped',
        'on_service_contracts_dropped', 'on_service_moved', 'on_service_dropped', 'on_queue_dropped',
        'on_queue_status_changed', 'on_new_broker', 'on_error_broker_conversations',
        'on_notification_created', 'on_notification_dropped'];
    v_name text;
BEGIN
    FOR v_name IN
        SELECT format('dialoq.%I', c.relname) FROM pg_catalog.pg_class AS c
        WHERE c.relnamespace = 'dialoq'::regnamespace AND c.relkind = 'v'
            -- What install/clear.sql found to be somebody else's is his to give rights on.
            AND c.oid <> ALL (coalesce(nullif(current_setting('dialoq.foreign_relations', true), ''), '{}')::oid[])
    LOOP
        EXECUTE format('GRANT SELECT ON %s TO dialoq_user, dialoq_admin', v_name);
    END LOOP;
    FOREACH v_name IN ARRAY v_verbs LOOP
        EXECUTE format('GRANT EXECUTE ON FUNCTION dialoq.%I TO dialoq_user, dialoq_admin', v_name);
    END LOOP;
    FOREACH v_name IN ARRAY v_definitions LOOP
        EXECUTE format('GRANT EXECUTE ON FUNCTION dialoq.%I TO dialoq_admin', v_name);
    END LOOP;
END
$$;

-- What install/clear.sql kept: rights of single roles, on what is still there.
DO $$
DECLARE
    v_statement text;
BEGIN
    FOR v_statement IN
        SELECT k.statement
        FROM jsonb_to_recordset(coalesce(nullif(current_setting('dialoq.kept_rights', true), ''), '[]')::jsonb)
            AS k (relation text, routine text, "column" text, statement text)
        WHERE to_regprocedure(k.routine) IS NOT NULL
            OR k."column" IS NULL AND to_regclass(k.relation) IS NOT NULL
            OR EXISTS (SELECT FROM pg_attribute AS a WHERE a.attrelid = to_regclass(k.relation) AND a.attname = k."column")
    LOOP
        EXECUTE v_statement;
    END LOOP;
END
$$;
