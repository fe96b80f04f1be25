-- Writes a queue, new or not, or removes one.
-- Takes: the columns of service_queue; or the queue_id
-- Gives: nothing
-- Errors: 60003
-- Locks: the row
-- Called by: dialoq_admin (put_service_queue, delete_service_queue)
CREATE PROCEDURE dialoq.put_service_queue
    @queue_id int, @name nvarchar(256), @folded_name nvarchar(512), @is_receive_enabled bit, @is_enqueue_enabled bit,
    @is_retention_enabled bit, @is_poison_message_handling_enabled bit, @is_poison_quarantine_enabled bit,
    @is_activation_enabled bit, @activation_procedure nvarchar(1024), @max_queue_readers int,
    @execute_as nvarchar(256), @execute_as_user nvarchar(256), @retry_max_attempts int, @retry_delay_ms bigint,
    @retry_factor_percent bigint, @retry_max_delay_ms bigint, @retry_jitter_percent bigint, @retry_then nvarchar(16),
    @off_since datetime2(6), @off_by nvarchar(20), @off_reason nvarchar(2000)
AS
BEGIN
    -- <definition>
    EXEC dialoq.check_name @name;
    UPDATE dialoq.service_queue SET
        name = @name, folded_name = @folded_name, is_receive_enabled = @is_receive_enabled,
        is_enqueue_enabled = @is_enqueue_enabled, is_retention_enabled = @is_retention_enabled,
        is_poison_message_handling_enabled = @is_poison_message_handling_enabled,
        is_poison_quarantine_enabled = @is_poison_quarantine_enabled, is_activation_enabled = @is_activation_enabled,
        activation_procedure = @activation_procedure, max_queue_readers = @max_queue_readers,
        execute_as = @execute_as, execute_as_user = @execute_as_user, retry_max_attempts = @retry_max_attempts,
        retry_delay_ms = @retry_delay_ms, retry_factor_percent = @retry_factor_percent,
        retry_max_delay_ms = @retry_max_delay_ms, retry_jitter_percent = @retry_jitter_percent, retry_then = @retry_then,
        off_since = @off_since, off_by = @off_by, off_reason = @off_reason
    WHERE queue_id = @queue_id;
    IF @@ROWCOUNT = 0
        INSERT INTO dialoq.service_queue (
            queue_id, name, folded_name, is_receive_enabled, is_enqueue_enabled, is_retention_enabled,
            is_poison_message_handling_enabled, is_poison_quarantine_enabled, is_activation_enabled,
            activation_procedure, max_queue_readers, execute_as, execute_as_user, retry_max_attempts, retry_delay_ms,
            retry_factor_percent, retry_max_delay_ms, retry_jitter_percent, retry_then, off_since, off_by, off_reason
        ) VALUES (
            @queue_id, @name, @folded_name, @is_receive_enabled, @is_enqueue_enabled, @is_retention_enabled,
            @is_poison_message_handling_enabled, @is_poison_quarantine_enabled, @is_activation_enabled,
            @activation_procedure, @max_queue_readers, @execute_as, @execute_as_user, @retry_max_attempts, @retry_delay_ms,
            @retry_factor_percent, @retry_max_delay_ms, @retry_jitter_percent, @retry_then, @off_since,
            @off_by, @off_reason
        );
    -- </definition>
END
GO
CREATE PROCEDURE dialoq.delete_service_queue
    @queue_id int
AS
BEGIN
    -- <definition>
    DELETE FROM dialoq.service_queue WHERE queue_id = @queue_id;
    -- </definition>
END
GO
