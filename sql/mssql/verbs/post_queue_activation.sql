-- Tells the QUEUE_ACTIVATION notifications of a queue that there is work and nobody receives. For queue monitors.
-- Takes: the queue
-- Gives: notices
-- Errors: 60002
-- Locks: the groups of the notifications' conversations, waiting
-- Called by: dialoq_user
CREATE PROCEDURE dialoq.post_queue_activation
    @queue nvarchar(4000)
AS
BEGIN
    SET NOCOUNT ON;
    SET ROWCOUNT 0;
    SET LOCK_TIMEOUT -1;
    SET ANSI_WARNINGS, ANSI_PADDING, ARITHABORT, CONCAT_NULL_YIELDS_NULL ON;
    SET NUMERIC_ROUNDABORT OFF;
    SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
    IF XACT_STATE() = -1 THROW 60020, N'the transaction can only be rolled back: an earlier statement of it failed', 1;
    DECLARE @is_own bit = CASE @@TRANCOUNT WHEN 0 THEN 1 ELSE 0 END;
    DECLARE @notices nvarchar(max), @text nvarchar(2048), @queue_id int;
    BEGIN TRY
        IF @is_own = 1 BEGIN TRANSACTION;
        SELECT @queue_id = q.queue_id
        FROM dialoq.service_queue AS q
        WHERE q.folded_name = dialoq.fold_name(@queue) AND DATALENGTH(q.folded_name) = DATALENGTH(@queue);
        IF @queue_id IS NULL
        BEGIN
            SET @text = dialoq.throw_text(CONCAT(N'queue ''', @queue, N''' was not found'));
            THROW 60002, @text, 1;
        END
        EXEC dialoq.post_event @queue_id, N'QUEUE_ACTIVATION', @notices OUTPUT;
        IF @is_own = 1 COMMIT TRANSACTION;
    END TRY
    BEGIN CATCH
        IF @is_own = 1 AND @@TRANCOUNT > 0 ROLLBACK TRANSACTION;
        THROW;
    END CATCH
    SELECT dialoq.distinct_notices(@notices) AS notices;
END
GO
