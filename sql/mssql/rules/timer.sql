-- When an endpoint falls due: its dialog timer, its LIFETIME, the end of its time as a closed endpoint.
-- Takes: an endpoint; the caller has locked its group
-- Gives: notices, added to @notices
-- Errors: none of its own
-- Locks: none that it waits for

-- When something next happens to an endpoint by itself. A conversation of the longest lifetime, 68 years, is not worth
-- an entry in the index for each of a million.
CREATE FUNCTION dialoq.next_due(
    @state nvarchar(2), @lifetime datetime2(6), @dialog_timer datetime2(6), @security_timestamp datetime2(6),
    @closed_retention_s bigint, @now datetime2(6)
) RETURNS datetime2(6) AS
BEGIN
    DECLARE @due datetime2(6) = CASE @state
        WHEN N'CD' THEN COALESCE(@security_timestamp, DATEADD(second, CAST(@closed_retention_s AS int), @lifetime))
        WHEN N'ER' THEN NULL
        ELSE @lifetime END;
    IF @dialog_timer IS NOT NULL AND (@due IS NULL OR @dialog_timer < @due)
        SET @due = @dialog_timer;
    IF @due >= DATEADD(day, 7300, @now)
        RETURN NULL;
    RETURN @due;
END
GO

-- Writes when something next happens to an endpoint.
CREATE PROCEDURE dialoq.reschedule
    @endpoint_id bigint, @now datetime2(6), @notices nvarchar(max) OUTPUT
AS
BEGIN
    SET NOCOUNT ON;
    DECLARE @closed_retention_s bigint, @due datetime2(6);
    SELECT @closed_retention_s = b.closed_retention_s FROM dialoq.broker AS b WHERE b.singleton = 1;
    SELECT @due = dialoq.next_due(e.state, e.lifetime, e.dialog_timer, e.security_timestamp, @closed_retention_s, @now)
    FROM dialoq.conversation_endpoint AS e WHERE e.endpoint_id = @endpoint_id;
    UPDATE dialoq.conversation_endpoint SET due_at = @due WHERE endpoint_id = @endpoint_id;
    SET @notices = CONCAT(@notices, dialoq.due_notice(@due));
END
GO

-- Does what is due at an endpoint: its timer, else the end of its time.
CREATE PROCEDURE dialoq.fall_due
    @endpoint_id bigint, @now datetime2(6), @notices nvarchar(max) OUTPUT
AS
BEGIN
    SET NOCOUNT ON;
    DECLARE @state nvarchar(2), @timer datetime2(6), @end_of_life datetime2(6), @closed bigint;
    SELECT @closed = b.closed_retention_s FROM dialoq.broker AS b WHERE b.singleton = 1;
    SELECT @state = e.state, @timer = e.dialog_timer,
        @end_of_life = CASE e.state
            WHEN N'CD' THEN COALESCE(e.security_timestamp, DATEADD(second, CAST(@closed AS int), e.lifetime))
            ELSE e.lifetime END
    FROM dialoq.conversation_endpoint AS e WHERE e.endpoint_id = @endpoint_id;
    IF @timer <= @now
    BEGIN
        UPDATE dialoq.conversation_endpoint SET dialog_timer = NULL WHERE endpoint_id = @endpoint_id;
        EXEC dialoq.add_system_message @endpoint_id, 2, 3, NULL, @now, @notices OUTPUT;
    END
    IF @end_of_life <= @now
    BEGIN
        IF @state IN (N'SO', N'CO', N'DI')
            EXEC dialoq.break_conversation
                @endpoint_id, -8489, N'the conversation has reached its LIFETIME', @now, @notices OUTPUT;
        IF @state IN (N'DO', N'CD')
        BEGIN
            -- Nobody is told: this side has ended, and what it could not say any more is dropped.
            EXEC dialoq.erase @endpoint_id, @notices OUTPUT;
            RETURN;
        END
    END
    EXEC dialoq.reschedule @endpoint_id, @now, @notices OUTPUT;
END
GO
