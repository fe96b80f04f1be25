-- MOVE CONVERSATION: puts a conversation into another group of the same service.
-- Takes: the handle, the group, which must have conversations
-- Gives: said
-- Errors: 58426, 58436, 58438, 58439
-- Locks: both groups, waiting
IF OBJECT_ID(N'dialoq.move_conversation') IS NOT NULL DROP PROCEDURE dialoq.move_conversation
GO
CREATE PROCEDURE dialoq.move_conversation
    @conversation_handle uniqueidentifier, @conversation_group_id uniqueidentifier
AS
BEGIN
    SET NOCOUNT ON;
    SET ROWCOUNT 0;
    SET LOCK_TIMEOUT -1;
    SET ANSI_WARNINGS, ANSI_PADDING, ARITHABORT, CONCAT_NULL_YIELDS_NULL ON;
    SET NUMERIC_ROUNDABORT OFF;
    SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
    DECLARE @is_own bit = CASE @@TRANCOUNT WHEN 0 THEN 1 ELSE 0 END;
    DECLARE @said nvarchar(max), @text nvarchar(2048), @endpoint_id bigint, @state nvarchar(2), @service_id int;
    DECLARE @group uniqueidentifier, @lifetime datetime2(6), @conversation_id uniqueidentifier, @is_initiator bit;
    DECLARE @other int, @is_locked bit, @is_ready bit;
    BEGIN TRY
        IF @is_own = 1 BEGIN TRANSACTION;
        EXEC dialoq.lock_open @conversation_handle, @endpoint_id OUTPUT, @said OUTPUT;
        SELECT @state = e.state, @group = e.conversation_group_id, @service_id = e.service_id, @lifetime = e.lifetime,
            @conversation_id = e.conversation_id, @is_initiator = e.is_initiator
        FROM dialoq.conversation_endpoint AS e WHERE e.endpoint_id = @endpoint_id;
        IF @state IN (N'DO', N'CD')
        BEGIN
            SET @text = dialoq.throw_text(CONCAT(N'conversation ', dialoq.id_text(@conversation_handle), N' is ', dialoq.state_words(@state),
                N'; MOVE CONVERSATION needs one that this side has not ended'));
            THROW 58438, @text, 1;
        END
        EXEC dialoq.lock_group @conversation_group_id, 1, @is_locked OUTPUT;
        SELECT TOP (1) @other = e.service_id
        FROM dialoq.conversation_endpoint AS e WITH (INDEX (conversation_endpoint_group), FORCESEEK)
        WHERE e.conversation_group_id = @conversation_group_id;
        IF @other IS NULL
        BEGIN
            SET @text = dialoq.throw_text(CONCAT(N'conversation group ', dialoq.id_text(@conversation_group_id),
                N' was not found: it has no conversations here'));
            THROW 58436, @text, 1;
        END
        IF @other <> @service_id
        BEGIN
            SET @text = dialoq.throw_text(CONCAT(N'conversation group ', dialoq.id_text(@conversation_group_id), N' belongs to service ''',
                (SELECT s.name FROM dialoq.service AS s WHERE s.service_id = @other), N''', the conversation to ''',
                (SELECT s.name FROM dialoq.service AS s WHERE s.service_id = @service_id), N'''; MOVE stays within one'));
            THROW 58439, @text, 1;
        END
        IF @group <> @conversation_group_id
        BEGIN
            UPDATE dialoq.conversation_endpoint SET conversation_group_id = @conversation_group_id
            WHERE endpoint_id = @endpoint_id;
            EXEC dialoq.put_right @group;
            EXEC dialoq.put_right @conversation_group_id, @is_ready OUTPUT;
            IF @is_ready = 1
                SET @said = CONCAT(@said, N' q:', (SELECT s.queue_id FROM dialoq.service AS s WHERE s.service_id = @service_id));
            -- Whoever sends at this moment still announces it to the old group.
            EXEC dialoq.unsettle @endpoint_id, @conversation_id, @is_initiator;
        END
        IF @is_own = 1 COMMIT TRANSACTION;
    END TRY
    BEGIN CATCH
        IF @is_own = 1 AND @@TRANCOUNT > 0 ROLLBACK TRANSACTION;
        THROW;
    END CATCH
    SELECT dialoq.words(@said) AS said;
END
GO
