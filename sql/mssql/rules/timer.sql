-- The dialog timer, and the time of the next event of an endpoint.
-- Takes: see each routine; the caller has locked the endpoint's group
-- Gives: notices, added to @notices
-- Errors: none of its own
-- Locks: none that it waits for

-- The time of the next event of an endpoint: its timer or its end. The end of a pause (retry_at) is for the caller to add. A conversation of the longest lifetime, 68 years, is not
-- worth an entry in the index for each of a million.
CREATE FUNCTION dialoq.next_due(
    @state nvarchar(2), @lifetime datetime2(6), @dialog_timer datetime2(6), @security_timestamp datetime2(6),
    @closed_retention_s bigint, @now datetime2(6)
) RETURNS datetime2(6) AS
BEGIN
    DECLARE @due datetime2(6);
    IF @state <> N'ER' SET @due = dialoq.end_of_life(@state, @lifetime, @security_timestamp, @closed_retention_s);
    IF @dialog_timer IS NOT NULL AND (@due IS NULL OR @dialog_timer < @due)
        SET @due = @dialog_timer;
    IF @due >= DATEADD(day, 7300, @now)
        RETURN NULL;
    RETURN @due;
END
GO

-- The earlier of two times, of which one or both may be NULL.
CREATE FUNCTION dialoq.earlier(@one datetime2(6), @other datetime2(6)) RETURNS datetime2(6) AS
BEGIN
    RETURN CASE WHEN @other IS NULL OR @one < @other THEN @one ELSE @other END;
END
GO

-- Writes the time of an endpoint's next event.
CREATE PROCEDURE dialoq.reschedule
    @endpoint_id bigint, @now datetime2(6), @notices nvarchar(max) OUTPUT
AS
BEGIN
    SET NOCOUNT ON;
    DECLARE @closed_retention_s bigint, @due datetime2(6);
    SELECT @closed_retention_s = b.closed_retention_s FROM dialoq.broker AS b WHERE b.singleton = 1;
    SELECT @due = dialoq.earlier(e.retry_at,
        dialoq.next_due(e.state, e.lifetime, e.dialog_timer, e.security_timestamp, @closed_retention_s, @now))
    FROM dialoq.conversation_endpoint AS e WHERE e.endpoint_id = @endpoint_id;
    UPDATE dialoq.conversation_endpoint SET due_at = @due WHERE endpoint_id = @endpoint_id;
    SET @notices = CONCAT(@notices, dialoq.due_notice(@due));
END
GO

-- Sends the DialogTimer message of a timer that is due, and clears the timer.
CREATE PROCEDURE dialoq.fire_timer
    @endpoint_id bigint, @now datetime2(6), @notices nvarchar(max) OUTPUT
AS
BEGIN
    SET NOCOUNT ON;
    UPDATE dialoq.conversation_endpoint SET dialog_timer = NULL WHERE endpoint_id = @endpoint_id AND dialog_timer <= @now;
    IF @@ROWCOUNT > 0 EXEC dialoq.add_system_message @endpoint_id, 2, 3, NULL, @now, @notices OUTPUT;
END
GO
