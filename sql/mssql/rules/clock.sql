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

-- The time so many microseconds later. DATEADD takes an int: 35 minutes of microseconds.
CREATE FUNCTION dialoq.add_us(@time datetime2(6), @us bigint) RETURNS datetime2(6) AS
BEGIN
    RETURN DATEADD(microsecond, CAST(@us % 1000000 AS int), DATEADD(second, CAST(@us / 1000000 % 86400 AS int),
        DATEADD(day, CAST(@us / 86400000000 AS int), @time)));
END
GO
