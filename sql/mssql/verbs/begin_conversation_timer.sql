-- BEGIN CONVERSATION TIMER: has a DialogTimer message arrive after that time; a new timer replaces the old.
-- Takes: the handle, the seconds
-- Gives: notices
-- Errors: 58410, 58411, 58426, 58458
-- Locks: the conversation's group, waiting
-- For: plain SQL
-- Called by: dialoq_user
CREATE PROCEDURE dialoq.begin_conversation_timer
    @conversation_handle uniqueidentifier, @timeout_seconds bigint
AS
BEGIN
    -- <settings>
    DECLARE @notices nvarchar(max), @text nvarchar(2048), @endpoint_id bigint, @state nvarchar(2), @service_id int;
    DECLARE @group uniqueidentifier, @lifetime datetime2(6), @conversation_id uniqueidentifier, @is_initiator bit;
    DECLARE @now datetime2(6), @timer datetime2(6);
    -- <transaction>
    IF @timeout_seconds IS NULL OR @timeout_seconds NOT BETWEEN 1 AND 2147483647
    BEGIN
        SET @text = dialoq.throw_text(CONCAT(N'TIMEOUT is ', @timeout_seconds, N' seconds; it must be 1 to 2147483647'));
        THROW 58411, @text, 1;
    END
    SET @now = dialoq.current_time_utc();
    SET @timer = DATEADD(second, CAST(@timeout_seconds AS int), @now);
    -- A lifetime never changes, so no lock is needed to read it. A conversation that has ended is refused with another error.
    SELECT @lifetime = e.lifetime
    FROM dialoq.conversation_endpoint AS e WITH (READUNCOMMITTED)
    WHERE e.conversation_handle = @conversation_handle AND e.is_system = 0 AND e.state NOT IN (N'DO', N'CD');
    IF @timer > @lifetime
    BEGIN
        SET @text = dialoq.throw_text(CONCAT(N'the timer would fire at ', dialoq.time_text(@timer), N', after the conversation expires at ',
            dialoq.time_text(@lifetime)));
        THROW 58410, @text, 1;
    END
    EXEC dialoq.lock_unended @conversation_handle, 58458, N'BEGIN CONVERSATION TIMER', @endpoint_id OUTPUT, @notices OUTPUT;
    UPDATE dialoq.conversation_endpoint SET dialog_timer = @timer WHERE endpoint_id = @endpoint_id;
    EXEC dialoq.reschedule @endpoint_id, @now, @notices OUTPUT;
    -- </transaction>
    SELECT dialoq.distinct_notices(@notices) AS notices;
END
GO
