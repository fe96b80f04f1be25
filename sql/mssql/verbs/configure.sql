-- Settings that belong to no definition. configure: how long closed target endpoints are kept. set_manual_now: tests
-- only, the time to use instead of the server's; NULL returns to the server's. With @if_it_is it does nothing if the time is another.
-- Takes: seconds after an END that has reached the initiator; seconds otherwise (NULL: the LIFETIME); or the time
-- Gives: nothing
-- Errors: 60005
-- Locks: the broker's row
-- For: plain SQL
-- Called by: dialoq_admin
CREATE PROCEDURE dialoq.configure
    @closed_retention_s bigint, @unconfirmed_retention_s bigint = NULL
AS
BEGIN
    -- <settings>
    IF @closed_retention_s IS NULL OR @closed_retention_s NOT BETWEEN 0 AND 2147483647
        OR @unconfirmed_retention_s NOT BETWEEN 0 AND 2147483647
        THROW 60005, N'a retention of closed endpoints is out of range; it must be 0 to 2147483647 seconds', 1;
    UPDATE dialoq.broker
    SET closed_retention_s = @closed_retention_s, unconfirmed_retention_s = @unconfirmed_retention_s
    WHERE closed_retention_s <> @closed_retention_s
        OR COALESCE(unconfirmed_retention_s, -1) <> COALESCE(@unconfirmed_retention_s, -1);
END
GO
CREATE PROCEDURE dialoq.set_manual_now
    @now datetime2(6), @if_it_is datetime2(6) = NULL
AS
BEGIN
    -- <settings>
    IF @now NOT BETWEEN '1900-01-01' AND '9000-01-01'
        THROW 60005, N'the manual time is out of range; it must be of the years 1900 to 8999, or NULL', 1;
    UPDATE dialoq.broker SET manual_now = @now WHERE @if_it_is IS NULL OR manual_now = @if_it_is;
END
GO
