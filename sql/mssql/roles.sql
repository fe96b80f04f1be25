-- The roles and their rights: dialoq_user may execute the verbs and read the views, dialoq_admin may also change
-- definitions; nobody touches a table. What a procedure does inside needs no right of its caller's, because procedures and
-- tables have one owner.
IF DATABASE_PRINCIPAL_ID(N'dialoq_user') IS NULL EXEC(N'CREATE ROLE dialoq_user')
GO
IF DATABASE_PRINCIPAL_ID(N'dialoq_admin') IS NULL EXEC(N'CREATE ROLE dialoq_admin')
GO
-- The locks of the broker belong to dialoq_user, so whoever calls a verb must be a member.
IF NOT EXISTS (
    SELECT 1 FROM sys.database_role_members AS m
    WHERE m.role_principal_id = DATABASE_PRINCIPAL_ID(N'dialoq_user')
        AND m.member_principal_id = DATABASE_PRINCIPAL_ID(N'dialoq_admin'))
    EXEC(N'ALTER ROLE dialoq_user ADD MEMBER dialoq_admin');
GO
GRANT SELECT ON dialoq.tick_failure TO dialoq_admin;
GRANT SELECT ON dialoq.installed TO dialoq_user, dialoq_admin;
GRANT SELECT ON dialoq.live_process TO dialoq_user, dialoq_admin;
GRANT SELECT ON dialoq.effective_endpoint TO dialoq_user, dialoq_admin;
GRANT SELECT ON dialoq.effective_message TO dialoq_user, dialoq_admin;
GRANT SELECT ON dialoq.effective_transmission TO dialoq_user, dialoq_admin;
GRANT SELECT ON dialoq.queue_messages TO dialoq_user, dialoq_admin;
GRANT SELECT ON dialoq.read_broker TO dialoq_user, dialoq_admin;
GRANT SELECT ON dialoq.read_message_types TO dialoq_user, dialoq_admin;
GRANT SELECT ON dialoq.read_service_contracts TO dialoq_user, dialoq_admin;
GRANT SELECT ON dialoq.read_service_contract_message_usages TO dialoq_user, dialoq_admin;
GRANT SELECT ON dialoq.read_service_queues TO dialoq_user, dialoq_admin;
GRANT SELECT ON dialoq.read_services TO dialoq_user, dialoq_admin;
GRANT SELECT ON dialoq.read_service_contract_usages TO dialoq_user, dialoq_admin;
GRANT SELECT ON dialoq.read_conversation_priorities TO dialoq_user, dialoq_admin;
GRANT SELECT ON dialoq.read_xml_schema_collections TO dialoq_user, dialoq_admin;
GRANT SELECT ON dialoq.read_event_notifications TO dialoq_user, dialoq_admin;
GRANT SELECT ON dialoq.sys_conversation_endpoints TO dialoq_user, dialoq_admin;
GRANT SELECT ON dialoq.sys_conversation_groups TO dialoq_user, dialoq_admin;
GRANT SELECT ON dialoq.sys_conversation_priorities TO dialoq_user, dialoq_admin;
GRANT SELECT ON dialoq.sys_databases TO dialoq_user, dialoq_admin;
GRANT SELECT ON dialoq.sys_dm_broker_activated_tasks TO dialoq_user, dialoq_admin;
GRANT SELECT ON dialoq.sys_dm_broker_queue_monitors TO dialoq_user, dialoq_admin;
GRANT SELECT ON dialoq.sys_remote_service_bindings TO dialoq_user, dialoq_admin;
GRANT SELECT ON dialoq.sys_routes TO dialoq_user, dialoq_admin;
GRANT SELECT ON dialoq.sys_service_contract_message_usages TO dialoq_user, dialoq_admin;
GRANT SELECT ON dialoq.sys_service_contract_usages TO dialoq_user, dialoq_admin;
GRANT SELECT ON dialoq.sys_service_contracts TO dialoq_user, dialoq_admin;
GRANT SELECT ON dialoq.sys_service_message_types TO dialoq_user, dialoq_admin;
GRANT SELECT ON dialoq.sys_service_queues TO dialoq_user, dialoq_admin;
GRANT SELECT ON dialoq.sys_services TO dialoq_user, dialoq_admin;
GRANT SELECT ON dialoq.sys_transmission_queue TO dialoq_user, dialoq_admin;
GO
GRANT EXECUTE ON dialoq.begin_dialog_conversation TO dialoq_user, dialoq_admin;
GRANT EXECUTE ON dialoq.send TO dialoq_user, dialoq_admin;
GRANT EXECUTE ON dialoq.send_many TO dialoq_user, dialoq_admin;
GRANT EXECUTE ON dialoq.send_batch TO dialoq_user, dialoq_admin;
GRANT EXECUTE ON dialoq.receive TO dialoq_user, dialoq_admin;
GRANT EXECUTE ON dialoq.receive_batch TO dialoq_user, dialoq_admin;
GRANT EXECUTE ON dialoq.get_conversation_group TO dialoq_user, dialoq_admin;
GRANT EXECUTE ON dialoq.move_conversation TO dialoq_user, dialoq_admin;
GRANT EXECUTE ON dialoq.end_conversation TO dialoq_user, dialoq_admin;
GRANT EXECUTE ON dialoq.begin_conversation_timer TO dialoq_user, dialoq_admin;
GRANT EXECUTE ON dialoq.get_transmission_status TO dialoq_user, dialoq_admin;
GRANT EXECUTE ON dialoq.reprioritise TO dialoq_user, dialoq_admin;
GRANT EXECUTE ON dialoq.release_quarantine TO dialoq_user, dialoq_admin;
GRANT EXECUTE ON dialoq.post_queue_activation TO dialoq_user, dialoq_admin;
GRANT EXECUTE ON dialoq.tick TO dialoq_user, dialoq_admin;
GRANT EXECUTE ON dialoq.poll TO dialoq_user, dialoq_admin;
GRANT EXECUTE ON dialoq.begin_attempt TO dialoq_user, dialoq_admin;
GRANT EXECUTE ON dialoq.commit_attempt TO dialoq_user, dialoq_admin;
GRANT EXECUTE ON dialoq.count_rollback TO dialoq_user, dialoq_admin;
GRANT EXECUTE ON dialoq.claim_unit TO dialoq_user, dialoq_admin;
GRANT EXECUTE ON dialoq.unit_happened TO dialoq_user, dialoq_admin;
GRANT EXECUTE ON dialoq.notify_processes TO dialoq_user, dialoq_admin;
GRANT EXECUTE ON dialoq.unlock_session TO dialoq_user, dialoq_admin;
GRANT EXECUTE ON dialoq.hold_presence TO dialoq_user, dialoq_admin;
GRANT EXECUTE ON dialoq.take_reader_slot TO dialoq_user, dialoq_admin;
GRANT EXECUTE ON dialoq.free_reader_slot TO dialoq_user, dialoq_admin;
GRANT EXECUTE ON dialoq.put_queue_monitor TO dialoq_user, dialoq_admin;
GRANT EXECUTE ON dialoq.delete_queue_monitor TO dialoq_user, dialoq_admin;
GRANT EXECUTE ON dialoq.put_activated_task TO dialoq_user, dialoq_admin;
GRANT EXECUTE ON dialoq.delete_activated_task TO dialoq_user, dialoq_admin;
GRANT EXECUTE ON dialoq.delete_process TO dialoq_user, dialoq_admin;
GO
GRANT EXECUTE ON dialoq.define_begin TO dialoq_admin;
GRANT EXECUTE ON dialoq.define_end TO dialoq_admin;
GRANT EXECUTE ON dialoq.configure TO dialoq_admin;
GRANT EXECUTE ON dialoq.put_message_type TO dialoq_admin;
GRANT EXECUTE ON dialoq.put_service_contract TO dialoq_admin;
GRANT EXECUTE ON dialoq.put_service_queue TO dialoq_admin;
GRANT EXECUTE ON dialoq.delete_service_queue TO dialoq_admin;
GRANT EXECUTE ON dialoq.put_service TO dialoq_admin;
GRANT EXECUTE ON dialoq.delete_service TO dialoq_admin;
GRANT EXECUTE ON dialoq.put_conversation_priority TO dialoq_admin;
GRANT EXECUTE ON dialoq.delete_conversation_priority TO dialoq_admin;
GRANT EXECUTE ON dialoq.put_xml_schema_collection TO dialoq_admin;
GRANT EXECUTE ON dialoq.delete_xml_schema_collection TO dialoq_admin;
GRANT EXECUTE ON dialoq.put_event_notification TO dialoq_admin;
GRANT EXECUTE ON dialoq.delete_event_notification TO dialoq_admin;
GRANT EXECUTE ON dialoq.put_settings TO dialoq_admin;
GRANT EXECUTE ON dialoq.on_contract_dropped TO dialoq_admin;
GRANT EXECUTE ON dialoq.on_service_contracts_dropped TO dialoq_admin;
GRANT EXECUTE ON dialoq.on_service_moved TO dialoq_admin;
GRANT EXECUTE ON dialoq.on_service_dropped TO dialoq_admin;
GRANT EXECUTE ON dialoq.on_queue_dropped TO dialoq_admin;
GRANT EXECUTE ON dialoq.on_queue_status_changed TO dialoq_admin;
GRANT EXECUTE ON dialoq.on_new_broker TO dialoq_admin;
GRANT EXECUTE ON dialoq.on_error_broker_conversations TO dialoq_admin;
GRANT EXECUTE ON dialoq.on_notification_created TO dialoq_admin;
GRANT EXECUTE ON dialoq.on_notification_dropped TO dialoq_admin;
GO
-- Where types have no rights, everybody may use them.
IF @@VERSION NOT LIKE N'%Babelfish%'
BEGIN
    EXEC(N'GRANT EXECUTE ON TYPE::dialoq.send_many_rows TO dialoq_user, dialoq_admin');
    EXEC(N'GRANT EXECUTE ON TYPE::dialoq.send_batch_rows TO dialoq_user, dialoq_admin');
    EXEC(N'GRANT EXECUTE ON TYPE::dialoq.receive_batch_rows TO dialoq_user, dialoq_admin');
    EXEC(N'GRANT EXECUTE ON TYPE::dialoq.usage_rows TO dialoq_admin');
    EXEC(N'GRANT EXECUTE ON TYPE::dialoq.contract_id_rows TO dialoq_admin');
END
GO
-- What install/clear.sql kept: rights of single users and other roles, on what is still there.
IF OBJECT_ID(N'tempdb..#dialoq_rights') IS NOT NULL
BEGIN
    DECLARE @rights nvarchar(max);
    SELECT @rights = STRING_AGG(CAST(r.statement AS nvarchar(max)), N'; ')
    FROM #dialoq_rights AS r
    WHERE OBJECT_ID(r.object_name) IS NOT NULL
        AND (r.column_name IS NULL OR COL_LENGTH(r.object_name, r.column_name) IS NOT NULL);
    IF @rights IS NOT NULL EXEC(@rights);
    DROP TABLE #dialoq_rights;
END
GO
