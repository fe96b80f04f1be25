-- A publication FOR ALL TABLES publishes these tables too. PostgreSQL then refuses to delete from a table that has neither a primary
-- key nor a replica identity, so every RECEIVE failed. Without logical replication this costs nothing.
ALTER TABLE dialoq.queue_message REPLICA IDENTITY USING INDEX queue_message_endpoint;
ALTER TABLE dialoq.ready_group REPLICA IDENTITY FULL;
ALTER TABLE dialoq.queue_rollback REPLICA IDENTITY FULL;
