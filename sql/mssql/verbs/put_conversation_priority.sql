-- Writes a broker priority, new or not, or removes one. NULL is ANY.
-- Takes: the columns of conversation_priority; or the priority_id
-- Gives: nothing
-- Errors: none of its own
-- Locks: the row
-- Called by: dialoq_admin (put_conversation_priority, delete_conversation_priority)
CREATE PROCEDURE dialoq.put_conversation_priority
    @priority_id int, @name nvarchar(256), @service_contract_id int, @local_service_id int,
    @remote_service_name nvarchar(512), @priority int
AS
BEGIN
    -- <definition>
    UPDATE dialoq.conversation_priority SET
        name = @name, service_contract_id = @service_contract_id, local_service_id = @local_service_id,
        remote_service_name = @remote_service_name, priority = @priority
    WHERE priority_id = @priority_id;
    IF @@ROWCOUNT = 0
        INSERT INTO dialoq.conversation_priority (
            priority_id, name, service_contract_id, local_service_id, remote_service_name, priority
        ) VALUES (
            @priority_id, @name, @service_contract_id, @local_service_id, @remote_service_name, @priority
        );
    -- </definition>
END
GO
CREATE PROCEDURE dialoq.delete_conversation_priority
    @priority_id int
AS
BEGIN
    -- <definition>
    DELETE FROM dialoq.conversation_priority WHERE priority_id = @priority_id;
    -- </definition>
END
GO
