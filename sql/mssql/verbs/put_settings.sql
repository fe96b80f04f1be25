-- Writes the settings of the broker; makes its row with the first call.
-- Takes: service_broker_guid, is_broker_enabled, is_honor_broker_priority_on, next_object_id
-- Gives: nothing
-- Errors: none of its own
-- Locks: the broker's row
-- Called by: dialoq_admin
CREATE PROCEDURE dialoq.put_settings
    @service_broker_guid uniqueidentifier, @is_broker_enabled bit, @is_honor_broker_priority_on bit,
    @next_object_id int
AS
BEGIN
    -- <definition>
    UPDATE dialoq.broker SET
        service_broker_guid = @service_broker_guid, is_broker_enabled = @is_broker_enabled,
        is_honor_broker_priority_on = @is_honor_broker_priority_on, next_object_id = @next_object_id
    WHERE singleton = 1;
    IF @@ROWCOUNT = 0
        INSERT INTO dialoq.broker (
            singleton, service_broker_guid, is_broker_enabled, is_honor_broker_priority_on, next_object_id,
            catalog_version, closed_retention_s
        ) VALUES (
            1, @service_broker_guid, @is_broker_enabled, @is_honor_broker_priority_on, @next_object_id, 1, 1800
        );
    -- </definition>
END
GO
