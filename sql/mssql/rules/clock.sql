-- The time.
-- Takes: nothing
-- Gives: see each function
-- Errors: none
-- Locks: none

-- The server's clock in UTC, or the time that tests have set.
CREATE FUNCTION dialoq.current_time_utc() RETURNS datetime2(6) AS
BEGIN
    RETURN (SELECT COALESCE(b.manual_now, SYSUTCDATETIME()) FROM dialoq.broker AS b WHERE b.singleton = 1);
END
GO
