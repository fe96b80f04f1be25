-- The end of a conversation whose LIFETIME has run out, and of a closed endpoint after its retention.
-- Takes: see each routine; the caller has locked the endpoint's group
-- Gives: notices, added to @notices
-- Errors: none of its own
-- Locks: none that it waits for

-- The time at which an endpoint ends by itself: its lifetime, or the end of the time for which a closed endpoint is kept.
CREATE FUNCTION dialoq.end_of_life(
    @state nvarchar(2), @lifetime datetime2(6), @security_timestamp datetime2(6), @closed_retention_s bigint
) RETURNS datetime2(6) AS
BEGIN
    RETURN CASE @state
        WHEN N'CD' THEN COALESCE(@security_timestamp, DATEADD(second, CAST(@closed_retention_s AS int), @lifetime))
        ELSE @lifetime END;
END
GO

-- Ends an endpoint whose time has run out, if it has. An open conversation breaks (-8489). An endpoint that this side has
-- ended is erased without a message, and its unsent messages with it.
CREATE PROCEDURE dialoq.expire
    @endpoint_id bigint, @now datetime2(6), @notices nvarchar(max) OUTPUT
AS
BEGIN
    SET NOCOUNT ON;
    DECLARE @state nvarchar(2), @end_of_life datetime2(6);
    SELECT @state = e.state,
        @end_of_life = dialoq.end_of_life(e.state, e.lifetime, e.security_timestamp, b.closed_retention_s)
    FROM dialoq.conversation_endpoint AS e CROSS JOIN dialoq.broker AS b
    WHERE e.endpoint_id = @endpoint_id AND b.singleton = 1;
    IF @end_of_life IS NULL OR @end_of_life > @now RETURN;
    IF @state IN (N'SO', N'CO', N'DI')
        EXEC dialoq.break_conversation
            @endpoint_id, -8489, N'the conversation has reached its LIFETIME', @now, @notices OUTPUT;
    ELSE IF @state IN (N'DO', N'CD')
        EXEC dialoq.erase @endpoint_id, @notices OUTPUT;
END
GO
